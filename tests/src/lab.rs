//! Builds of real programs that several tests share: made once, kept in the target folder, made again when what goes
//! into them changes.

use crate::{debian, nopal, root, run, target_dir};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder `lab/NAME` as `build` left it. `ingredients` are what the build depends on; it runs again when they are
/// not those of last time. Other test binaries wait meanwhile.
pub fn cached(name: &str, ingredients: &impl Hash, build: impl FnOnce(&Path)) -> PathBuf {
    let lab = target_dir().join("lab");
    fs::create_dir_all(&lab).expect("the lab folder can be made");
    let lock = fs::File::create(lab.join(format!("{name}.lock"))).expect("the lock file can be made");
    lock.lock().expect("the lock can be taken");
    let mut hasher = DefaultHasher::new();
    ingredients.hash(&mut hasher);
    let stamp = format!("{:016x}", hasher.finish());
    let folder = lab.join(name);
    let stamp_file = lab.join(format!("{name}.stamp"));
    if fs::read_to_string(&stamp_file).is_ok_and(|s| s == stamp) && folder.exists() {
        return folder;
    }
    let _ = fs::remove_file(&stamp_file);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("an old build can be removed");
    }
    fs::create_dir_all(&folder).expect("the build folder can be made");
    build(&folder);
    fs::write(&stamp_file, stamp).expect("the stamp can be written");
    folder
}

/// A value for PATH on which `dtrace` is `program`, by a link in `folder`.
pub fn path_with_dtrace(folder: &Path, program: &Path) -> String {
    fs::create_dir_all(folder).expect("the folder can be made");
    let link = folder.join("dtrace");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(program, &link).expect("the link can be made");
    format!("{}:{}", folder.display(), std::env::var("PATH").expect("PATH is set"))
}

/// Copies a source tree; `cp` keeps times, so that nothing is generated anew.
pub fn copy_tree(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").arg(from.join(".")).arg(to));
}

/// memcached with its own flags, `dtrace` and `sys/sdt.h` ours.
pub fn memcached() -> PathBuf {
    let header = fs::read(root().join("include/sys/sdt.h")).expect("include/sys/sdt.h is there");
    let source = debian::source("memcached");
    let made = dtrace_results(nopal(), &source.join("memcached_dtrace.d"));
    let folder = cached("memcached-nopal", &(header, made), |folder| {
        copy_tree(&source, folder);
        let path = path_with_dtrace(&folder.join(".tools"), nopal());
        make_memcached(folder, &path, &format!("-I{}", root().join("include").display()), "");
    });
    folder.join("memcached")
}

/// memcached with its own flags, `dtrace` and `sys/sdt.h` systemtap's.
pub fn memcached_by_systemtap() -> PathBuf {
    let source = debian::source("memcached");
    let folder = cached("memcached-stap", &"systemtap 4.8", |folder| {
        copy_tree(&source, folder);
        make_memcached(folder, &std::env::var("PATH").expect("PATH is set"), "", "");
    });
    folder.join("memcached")
}

/// memcached as in an Alpine container: linked with musl, `dtrace` a static program, no systemtap.
pub fn memcached_with_musl() -> PathBuf {
    let header = fs::read(root().join("include/sys/sdt.h")).expect("include/sys/sdt.h is there");
    let source = debian::source("memcached");
    let made = dtrace_results(nopal(), &source.join("memcached_dtrace.d"));
    let folder = cached("memcached-musl", &(header, made), |folder| {
        copy_tree(&source, folder);
        let libevent = libevent_with_musl();
        let path = path_with_dtrace(&folder.join(".tools"), static_nopal());
        let configure = format!("CC=musl-gcc LDFLAGS=-static --with-libevent={}", libevent.display());
        make_memcached(folder, &path, &format!("-I{}", root().join("include").display()), &configure);
    });
    folder.join("memcached")
}

/// The library memcached needs, its core alone, for musl: a folder with `include` and `lib`.
fn libevent_with_musl() -> PathBuf {
    // As upstream released it: Debian's patches would want automake to run again.
    let source = debian::files("libevent", &["*"]);
    cached("libevent-musl", &"core", |folder| {
        let build = folder.join("build");
        fs::create_dir_all(&build).expect("the build folder can be made");
        copy_tree(&source, &build);
        let script = "./configure --quiet CC=musl-gcc --disable-shared --disable-openssl --disable-samples \\
                --disable-libevent-regress
            make -s include/event2/event-config.h
            make -s -j2 libevent_core.la
            mkdir ../lib && cp .libs/libevent_core.a ../lib/libevent.a && cp -r include ../include";
        run(Command::new("sh").args(["-e", "-c", script]).current_dir(&build));
    })
}

/// The `nopal` command linked statically, which runs where there is no C library or another one.
pub fn static_nopal() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = "x86_64-unknown-linux-gnu";
        let folder = target_dir().join("lab/static");
        // Nothing is measured with it: it need not be fast, only soon there.
        run(Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "nopal-cli", "--no-default-features", "--target", target])
            .env("CARGO_TARGET_DIR", &folder)
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "none")
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .current_dir(root()));
        folder.join(target).join("debug/nopal")
    })
}

fn make_memcached(folder: &Path, path: &str, cppflags: &str, configure: &str) {
    let shell = |script: &str| {
        run(Command::new("sh")
            .args(["-e", "-c", script])
            .current_dir(folder)
            .env("PATH", path)
            .env("CPPFLAGS", cppflags)
            .env_remove("CFLAGS"));
    };
    shell(&format!("./configure --quiet --enable-dtrace {configure}"));
    // The header is only made in time by the target `all`, which also builds a debug variant nobody needs here.
    shell("make -s memcached_dtrace.h && make -s -j2 memcached");
}

/// What our `dtrace` makes of a `.d` file: the part of our own code that a build depends on.
fn dtrace_results(program: &Path, d_file: &Path) -> Vec<u8> {
    ["-h", "-G"].into_iter().flat_map(|mode| made(program, mode, d_file)).collect()
}

fn made(program: &Path, mode: &str, d_file: &Path) -> Vec<u8> {
    let output = Command::new(program)
        .args(["dtrace", mode, "-o", "-", "-s"])
        .arg(d_file)
        .output()
        .expect("nopal can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
