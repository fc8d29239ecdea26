//! How a process was started, and whether that is what some of its probes need.

use crate::file::Trap;

/// The command line and the environment of a process, as the kernel keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Started {
    pub arguments: Vec<String>,
    /// `NAME=VALUE`.
    pub variables: Vec<String>,
}

impl Started {
    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.iter().find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='))
    }

    /// What a JVM takes for its options, the last one counts: variables come before and after the command line, where they end
    /// with the program's name.
    fn options_of_jvm(&self) -> Vec<&str> {
        let words = |name| self.variable(name).unwrap_or_default().split_whitespace();
        let mut options: Vec<&str> = words("JAVA_TOOL_OPTIONS").chain(words("JDK_JAVA_OPTIONS")).collect();
        let mut arguments = self.arguments.iter().skip(1).map(String::as_str);
        while let Some(word) = arguments.next() {
            if TAKES_A_VALUE.contains(&word) {
                arguments.next();
            } else if NAMES_THE_PROGRAM.contains(&word) || !word.starts_with('-') && !word.starts_with('@') {
                break;
            } else {
                options.push(word);
            }
        }
        options.extend(words("_JAVA_OPTIONS"));
        options
    }

    /// Whether the process was started with what the trap is about. What stands in files of options is not known.
    pub fn has_what_it_needs(&self, trap: &Trap) -> bool {
        let mut is_on = false;
        for option in self.options_of_jvm() {
            let on = option.strip_prefix("-XX:+");
            let Some(name) = on.or_else(|| option.strip_prefix("-XX:-")) else { continue };
            if trap.unless.iter().any(|wanted| wanted.strip_prefix("-XX:+") == Some(name)) {
                is_on = on.is_some();
            }
        }
        is_on || trap.unless.iter().any(|wanted| self.variables.contains(wanted))
    }
}

/// Options of `java` whose value is the next word.
const TAKES_A_VALUE: [&str; 14] = [
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--add-reads",
    "--add-exports",
    "--add-opens",
    "--limit-modules",
    "--patch-module",
    "--describe-module",
    "--source",
];

const NAMES_THE_PROGRAM: [&str; 3] = ["-jar", "-m", "--module"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    #[test]
    fn a_process_has_what_its_probes_need() {
        let method = catalog::trap("hotspot", "method__entry").unwrap();
        let jni = catalog::trap("hotspot_jni", "GetVersion__entry").unwrap();
        let php = catalog::trap("php", "function__entry").unwrap();
        for (trap, arguments, variables, expected) in [
            (method, "java Shop", "", false),
            (method, "java -XX:+ExtendedDTraceProbes Shop", "", true),
            (method, "java -XX:+DTraceMethodProbes Shop", "", true),
            (method, "java -XX:+DTraceMonitorProbes Shop", "", false),
            (method, "java -XX:+DTraceMethodProbes -XX:-DTraceMethodProbes Shop", "", false),
            (method, "java -cp . -Xmx9m -XX:+DTraceMethodProbes -jar a.jar", "", true),
            // After the program's name it is a word of the program.
            (method, "java Shop -XX:+ExtendedDTraceProbes", "", false),
            (method, "java -jar a.jar -XX:+ExtendedDTraceProbes", "", false),
            (method, "java -cp -XX:+ExtendedDTraceProbes Shop", "", false),
            (method, "java -XX: -XX:+ Shop", "", false),
            (method, "java Shop", "JAVA_TOOL_OPTIONS=-Xmx9m -XX:+ExtendedDTraceProbes", true),
            (method, "java Shop", "JDK_JAVA_OPTIONS=-XX:+ExtendedDTraceProbes", true),
            (method, "java -XX:+DTraceMethodProbes Shop", "_JAVA_OPTIONS=-XX:-DTraceMethodProbes", false),
            (method, "java Shop", "JAVA_TOOL_OPTION=-XX:+ExtendedDTraceProbes", false),
            (jni, "java -XX:+ExtendedDTraceProbes Shop", "", true),
            (jni, "java -XX:+DTraceMethodProbes Shop", "", false),
            (php, "php a.php", "", false),
            (php, "php a.php", "USE_ZEND_DTRACE=1", true),
            (php, "php a.php", "USE_ZEND_DTRACE=0", false),
            (php, "php USE_ZEND_DTRACE=1", "", false),
        ] {
            let started = Started {
                arguments: arguments.split(' ').map(str::to_owned).collect(),
                variables: vec![variables.to_owned()],
            };
            assert_eq!(started.has_what_it_needs(trap), expected, "{variables} {arguments}");
        }
    }
}
