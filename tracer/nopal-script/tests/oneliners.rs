//! What people type: one-liners of bpftrace's own tutorial and reference, in the words of both old and new versions.

mod catalog;

use catalog::TestCatalog;
use nopal_program::interpret::Interpreter;
use nopal_script::{Options, compile, parse};
use std::sync::Arc;

const SCRIPTS: &[&str] = &[
    r#"BEGIN { printf("hello world\n"); }"#,
    r#"tracepoint:syscalls:sys_enter_openat { printf("%s %s\n", comm, str(args->filename)); }"#,
    r#"tracepoint:syscalls:sys_enter_openat { printf("%s %s\n", comm, str(args.filename)); }"#,
    r#"tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }"#,
    r#"tracepoint:syscalls:sys_exit_read /pid == 18644/ { @bytes = hist(args->ret); }"#,
    r#"kretprobe:vfs_read { @bytes = lhist(retval, 0, 2000, 200); }"#,
    r#"kprobe:vfs_read { @start[tid] = nsecs; } kretprobe:vfs_read /@start[tid]/ { @ns[comm] = hist(nsecs - @start[tid]); delete(@start[tid]); }"#,
    r#"kprobe:vfs_read { @start[tid] = nsecs } kretprobe:vfs_read /@start[tid]/ { @ns[comm] = hist(nsecs - @start[tid]); delete(@start, tid) }"#,
    r#"tracepoint:sched:sched* { @[probe] = count(); } interval:s:5 { exit(); }"#,
    r#"profile:hz:99 { @[kstack] = count(); }"#,
    r#"profile:hz:99 /pid == 189/ { @[ustack, comm] = count(); }"#,
    r#"tracepoint:sched:sched_switch { @[kstack] = count(); }"#,
    r#"tracepoint:block:block_rq_issue { @ = hist(args.bytes); }"#,
    r#"tracepoint:syscalls:sys_enter_execve { join(args->argv); }"#,
    r#"tracepoint:syscalls:sys_enter_execve { join(args.argv, ","); }"#,
    r#"uprobe:/bin/bash:readline { printf("arg0: %d\n", arg0); }"#,
    r#"uretprobe:/bin/bash:readline { printf("%-6d %s\n", pid, str(retval)); }"#,
    r#"uprobe:/usr/local/bin/bpftrace:"int bpftrace::add<int, int>(int, int)" { @ = count(); }"#,
    r#"uprobe:/bin/bash:main+4 { printf("in\n"); }"#,
    r#"uprobe:libc:malloc { @[ustack(3)] = sum(arg0); }"#,
    r#"usdt:/root/tick:loop { printf("%s: %d\n", str(arg1), arg0); }"#,
    r#"usdt:./app:prov:request { @[str(arg1, 10)] = count(); }"#,
    r#"usdt:/usr/lib/*/libpython3*:* { @[probe] = count(); }"#,
    r#"software:faults:100 { @[comm] = count(); }"#,
    r#"interval:s:1 { time("%H:%M:%S\n"); print(@x, 5, 1000); clear(@x); } kprobe:f { @x[comm] = sum(arg0); }"#,
    r#"BEGIN { @x = 1; if (@x == 1) { printf("yes\n"); } else { printf("no\n"); } }"#,
    r#"BEGIN { $i = 1; unroll(5) { printf("i: %d\n", $i); $i = $i + 1; } }"#,
    r#"BEGIN { $i = 0; while ($i < 1000) { $i++; } exit(); }"#,
    r#"BEGIN { $a = (1, 2, "string"); printf("%d %s\n", $a.1, $a.2); print($a) }"#,
    r#"BEGIN { @[1] = 1; for ($kv : @) { print($kv.0); print($kv.1); } }"#,
    r#"BEGIN { @reset = 5; @reset++; zero(@reset); @s["a"] = 1; delete(@s["a"]); }"#,
    r#"BEGIN { printf("%s\n", strftime("%H:%M:%S", nsecs)); printf("%u %u\n", nsecs, elapsed / 1e9); }"#,
    r#"BEGIN { $x = 1 << 3 | 4 & 0xf; printf("%d\n", $x == 12 ? 100 : 200); }"#,
    r#"kprobe:do_nanosleep /uid == 0 || gid != 0 && comm == "sleep"/ { printf("%d\n", *(uint64 *)arg0); }"#,
    r#"kprobe:f { printf("%s\n", ksym(reg("ip"))); printf("%d\n", *(reg("sp") + 8)); }"#,
    r#"kprobe:f { $t = (struct task_struct *)curtask; printf("%s %d\n", $t->comm, $t->real_parent->pid); }"#,
    "#include <linux/path.h>\nstruct q { int len; char *name; };\nkprobe:vfs_open { printf(\"%s\\n\", str(((struct q *)arg0)->name)); }",
    r#"uprobe:./a.out:f { printf("%r\n", buf(arg0, arg1)); printf("%s\n", kstr(arg2)); }"#,
    r#"BEGIN { printf("Hello\n"); printf("%d\n", 5); } END { printf("bye\n"); }"#,
    r#"i:s:1 { printf("%s\n", comm); } p:hz:49 { @[cpu] = count(); }"#,
    r#"BEGIN { let $a = 1; let $b : uint64 = 2; $a += (int64)$b; print($a); }"#,
    r#"BEGIN { if (strncmp(comm, "nop", 3) == 0 && strcontains(comm, "al")) { print(strlen(comm)); } }"#,
    r#"BEGIN { @a[1, 2, "x"] = 1; print(@a[1, 2, "x"]); print(len(@a)); if (has_key(@a, (1, 2, "x"))) { exit(2); } }"#,
    r#"BEGIN{@=count();}END{print(@);clear(@);}"#,
    r#"profile:hz:99 { @[ustack(perf)] = count(); @k[kstack(raw, 5)] = count(); } BEGIN { printf("%s\n", strerror(2)); }"#,
    r#"tracepoint:sched:sched* /pid == cpid && (pid, comm) != (1, "init")/ { @[probe] = count(); }"#,
    "BEGIN\n{\n\t@x = 1;;\n\n}\n",
];

#[test]
fn all_compile() {
    let mut failures = String::new();
    for script in SCRIPTS {
        let outcome =
            parse(script, "-e", &[], &Options::default()).and_then(|script| compile(&script, &TestCatalog));
        match outcome {
            Ok(program) => {
                Interpreter::new(Arc::new(program), 0).unwrap();
            }
            Err(errors) => failures += &format!("{}\n", errors[0].render(script, "-e", false)),
        }
    }
    assert!(failures.is_empty(), "{failures}");
}
