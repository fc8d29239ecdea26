use super::*;
use nopal_sdt::probe::Side;

#[test]
fn the_functions_of_this_program_have_edges() {
    let file = FileFunctions::read(Image::open(&std::env::current_exe().unwrap()).unwrap());
    let (mut n_functions, mut n_known) = (0, 0);
    for function in file.symbols().functions().filter(|f| f.size_bytes > 0).take(3000) {
        n_functions += 1;
        let Ok(edges) = file.edges(&function) else { continue };
        assert_eq!(edges.entry.address, function.address);
        let Ok(exits) = &edges.exits else { continue };
        n_known += 1;
        for exit in exits {
            let edge = exit.edge.as_ref().unwrap();
            assert!(edge.side != Side::Entry && edge.start <= exit.address, "{}", function.name);
            assert_eq!(exit.code[..], file.at(exit.address, SITE_BYTES as u64)[..], "{}", function.name);
        }
    }
    assert!(n_known * 10 > n_functions * 8, "{n_known} of {n_functions}");
}

#[test]
fn special_functions_are_left_alone() {
    for (name, expected) in [
        ("__restore_rt", Some(false)),
        ("_setjmp", Some(true)),
        ("__sigsetjmp", Some(true)),
        ("vfork", Some(true)),
        ("swapcontext", Some(true)),
        ("_dl_runtime_resolve_xsavec", Some(false)),
        ("main", None),
        ("restored", None),
        ("memcpy@@GLIBC_2.14", None),
    ] {
        assert_eq!(special(name).map(|(_, is_entry_fit)| is_entry_fit), expected, "{name}");
    }
}

#[test]
fn what_is_no_program_has_no_functions() {
    let file = FileFunctions::read(Image::open(std::path::Path::new("/etc/passwd")).unwrap());
    assert_eq!(file.symbols().functions().count(), 0);
    let ghost = Function { address: 0x1000, size_bytes: 16, name: "ghost" };
    assert_eq!(file.edges(&ghost), Err(Unfit::NotCode));
}
