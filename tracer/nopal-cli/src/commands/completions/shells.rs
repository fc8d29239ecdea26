//! The shells that complete: what bash and zsh run on a TAB is ours, as probes have colons in their names, the rest is clap's.

use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

pub(super) const ALL: Shells<'static> = Shells(&[
    &OwnRegistration { shell: &Bash, text: BASH },
    &Elvish,
    &Fish,
    &Powershell,
    &OwnRegistration { shell: &Zsh, text: ZSH },
]);

/// A shell of clap's that runs our text.
struct OwnRegistration {
    shell: &'static dyn EnvCompleter,
    text: &'static str,
}

/// Bash takes `a:b` and `a=b` for three words, and puts what is chosen in the place of the last.
const BASH: &str = r#"_nopal() {
    local IFS=$'\013' line=$COMP_LINE words=() cword=0 i word
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $line == "${line#[[:space:]]}" && -n $word ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
            line=${line#"${line%%[![:space:]]*}"}
        fi
        ((i == COMP_CWORD)) && cword=$((${#words[@]} - 1))
        line=${line#"$word"}
    done
    local current=${words[cword]} cut=
    case $current in
        [\'\"]*) words[cword]=${current:1} ;;
        *[:=]*) cut=${current%"${current##*[:=]}"} ;;
    esac
    COMPREPLY=($(_CLAP_IFS="$IFS" _CLAP_COMPLETE_INDEX="$cword" VAR=bash COMPLETER -- "${words[@]}" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"$cut"}")
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=/:] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o bashdefault -F _nopal nopal
"#;

/// As a file of `$fpath` it is the function itself when it is first called.
const ZSH: &str = r#"#compdef nopal
_nopal() {
    local -a found dirs others
    local one
    found=("${(@f)$(_CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) VAR=zsh COMPLETER -- "${words[@]}" 2>/dev/null)}")
    for one in $found; do
        if [[ $one == */ ]]; then dirs+=("${one%/}"); else others+=("$one"); fi
    done
    (( $#dirs )) && _describe -V folders dirs -S / -r /
    (( $#others )) && _describe -V values others
}
if [[ $funcstack[1] == _nopal ]]; then _nopal "$@"; else compdef _nopal nopal; fi
"#;

impl EnvCompleter for OwnRegistration {
    fn name(&self) -> &'static str {
        self.shell.name()
    }

    fn is(&self, name: &str) -> bool {
        self.shell.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        _name: &str,
        _bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        buf.write_all(self.text.replace("VAR", var).replace("COMPLETER", completer).as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut clap::Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        self.shell.write_complete(cmd, args, current_dir, buf)
    }
}
