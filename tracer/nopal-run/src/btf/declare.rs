//! Types of the kernel as C: declarations of members and parameters, and whole definitions, in the form that libbpf gives them.

use super::{
    ARRAY, Btf, CONST, ENUM, ENUM64, FORWARD, FUNCTION, Head, MAX_CHAIN, POINTER, PROTOTYPE, RESTRICT,
    STRUCT, TYPE_TAG, TYPEDEF, UNION, VOLATILE, padding, word,
};
use std::fmt::Write as _;

impl Btf {
    /// `struct file *f_op`, or the type alone if there is no name.
    pub(super) fn declaration(&self, id: u32, name: &str, depth: usize) -> String {
        let mut text = String::new();
        // Types lead back to themselves only through a name; this guards against damaged ones.
        if depth as u32 > MAX_CHAIN {
            return text;
        }
        let mut chain = self.chain(id);
        self.emit_chain(&mut text, &mut chain, name, depth);
        text
    }

    /// From what is declared to what it is made of: a pointer, the array that it leads to, the type of its elements.
    fn chain(&self, mut id: u32) -> Vec<u32> {
        let mut chain = Vec::new();
        for _ in 0..MAX_CHAIN {
            let Some(head) = self.head(id).filter(|_| id != 0) else {
                chain.push(0);
                break;
            };
            match head.kind {
                TYPE_TAG => {}
                _ => chain.push(id),
            }
            id = match head.kind {
                POINTER | VOLATILE | CONST | RESTRICT | TYPE_TAG | PROTOTYPE => head.size,
                ARRAY => word(&self.bytes, head.parts_at).unwrap_or(0),
                _ => break,
            };
        }
        chain
    }

    fn emit_chain(&self, text: &mut String, chain: &mut Vec<u32>, name: &str, depth: usize) {
        let mut is_after_pointer = true;
        while let Some(id) = chain.pop() {
            let head = self.head(id).filter(|_| id != 0);
            match head.map(|head| (head.kind, head)) {
                Some((POINTER, _)) => text.push_str(if is_after_pointer { "*" } else { " *" }),
                Some((VOLATILE, _)) => text.push_str(" volatile"),
                Some((CONST, _)) => text.push_str(" const"),
                Some((RESTRICT, _)) => text.push_str(" restrict"),
                Some((ARRAY, head)) => {
                    self.emit_array(text, chain, &head, (name, is_after_pointer), depth);
                    return;
                }
                Some((PROTOTYPE, head)) => {
                    self.emit_function(text, chain, &head, (name, is_after_pointer), depth);
                    return;
                }
                base => {
                    self.emit_qualifiers(text, chain);
                    match base {
                        None => text.push_str("void"),
                        Some((_, head)) => self.emit_base(text, id, &head, depth),
                    }
                }
            }
            is_after_pointer = head.is_some_and(|head| head.kind == POINTER);
        }
        emit_name(text, name, is_after_pointer);
    }

    /// `const` and the like stand before the type that they are about.
    fn emit_qualifiers(&self, text: &mut String, chain: &mut Vec<u32>) {
        while let Some(id) = chain.last() {
            text.push_str(match self.head(*id).map(|head| head.kind) {
                Some(VOLATILE) => "volatile ",
                Some(CONST) => "const ",
                Some(RESTRICT) => "restrict ",
                _ => return,
            });
            chain.pop();
        }
    }

    fn emit_base(&self, text: &mut String, id: u32, head: &Head, depth: usize) {
        let name = self.name(head.name);
        match head.kind {
            STRUCT | UNION if name.is_empty() => self.emit_record(text, id, head, depth),
            STRUCT => _ = write!(text, "struct {name}"),
            UNION => _ = write!(text, "union {name}"),
            FORWARD if head.has_bit_fields => _ = write!(text, "union {name}"),
            FORWARD => _ = write!(text, "struct {name}"),
            ENUM | ENUM64 if name.is_empty() => self.emit_enum(text, head, depth),
            ENUM | ENUM64 => _ = write!(text, "enum {name}"),
            _ => text.push_str(name),
        }
    }

    fn emit_array(
        &self,
        text: &mut String,
        chain: &mut Vec<u32>,
        head: &Head,
        (name, is_after_pointer): (&str, bool),
        depth: usize,
    ) {
        // Qualifiers of an array are those of its elements, which have them already.
        self.drop_qualifiers(chain);
        let n_elements = word(&self.bytes, head.parts_at + 8).unwrap_or(0);
        let Some(next) = chain.last() else {
            emit_name(text, name, is_after_pointer);
            let _ = write!(text, "[{n_elements}]");
            return;
        };
        let is_of_arrays = self.head(*next).is_some_and(|head| head.kind == ARRAY);
        if !name.is_empty() && !is_after_pointer {
            text.push(' ');
        }
        let mut inner = String::new();
        self.emit_chain(&mut inner, chain, name, depth);
        let _ = match is_of_arrays {
            true => write!(text, "{inner}[{n_elements}]"),
            false => write!(text, "({inner})[{n_elements}]"),
        };
    }

    fn emit_function(
        &self,
        text: &mut String,
        chain: &mut Vec<u32>,
        head: &Head,
        (name, is_after_pointer): (&str, bool),
        depth: usize,
    ) {
        self.drop_qualifiers(chain);
        if chain.is_empty() {
            emit_name(text, name, is_after_pointer);
        } else {
            text.push_str(" (");
            self.emit_chain(text, chain, name, depth);
            text.push(')');
        }
        let parameters = self.parameters_of(head);
        let list = match &parameters[..] {
            [] | [(0, _)] => "void".to_owned(),
            all => {
                let shown = all.iter().map(|(id, name)| match id {
                    0 => "...".to_owned(),
                    id => self.declaration(*id, name, depth + 1),
                });
                shown.collect::<Vec<_>>().join(", ")
            }
        };
        let _ = write!(text, "({list})");
    }

    fn drop_qualifiers(&self, chain: &mut Vec<u32>) {
        let is_qualifier =
            |id: &u32| self.head(*id).is_some_and(|head| matches!(head.kind, VOLATILE | CONST | RESTRICT));
        while chain.last().is_some_and(is_qualifier) {
            chain.pop();
        }
    }

    /// The type and the name of each.
    fn parameters_of(&self, prototype: &Head) -> Vec<(u32, String)> {
        let parameter = |index: usize| {
            let at = prototype.parts_at + 8 * index;
            Some((word(&self.bytes, at + 4)?, self.name(word(&self.bytes, at)?).to_owned()))
        };
        (0..prototype.n_parts as usize).map_while(parameter).collect()
    }

    fn emit_record(&self, text: &mut String, id: u32, head: &Head, depth: usize) {
        let name = self.name(head.name);
        text.push_str(if head.kind == UNION { "union " } else { "struct " });
        text.push_str(name);
        text.push_str(if name.is_empty() { "{" } else { " {" });
        let members = self.members(head);
        let is_packed = head.kind == STRUCT && self.is_packed(head);
        let (mut end_bit, mut was_bit_field) = (0, false);
        for member in &members {
            let align = if is_packed { 1 } else { self.align_bytes(member.type_id, 0) };
            let is_in_bit_field = was_bit_field && member.n_bits != 0;
            for pad in padding::between(end_bit, member.bit, align, is_in_bit_field) {
                let _ = write!(text, "\n{}{pad};", tabs(depth + 1));
            }
            let declared = self.declaration(member.type_id, &member.name, depth + 1);
            let _ = write!(text, "\n{}{declared}", tabs(depth + 1));
            if member.n_bits != 0 {
                let _ = write!(text, ": {}", member.n_bits);
            }
            text.push(';');
            was_bit_field = member.n_bits != 0;
            end_bit = member.bit
                + match member.n_bits {
                    0 => 8 * self.full_size_bytes(member.type_id, 0),
                    n_bits => u64::from(n_bits),
                };
        }
        if head.kind == STRUCT {
            let align = self.align_bytes(id, 0);
            for pad in padding::between(end_bit, 8 * u64::from(head.size), align, false) {
                let _ = write!(text, "\n{}{pad};", tabs(depth + 1));
            }
        }
        if !members.is_empty() || head.size > 0 {
            let _ = write!(text, "\n{}", tabs(depth));
        }
        text.push_str(if is_packed { "} __attribute__((packed))" } else { "}" });
    }

    fn emit_enum(&self, text: &mut String, head: &Head, depth: usize) {
        let name = self.name(head.name);
        text.push_str(if name.is_empty() { "enum" } else { "enum " });
        text.push_str(name);
        text.push_str(" {");
        for (label, value) in self.labels(head) {
            let suffix = match (head.kind, head.has_bit_fields) {
                (ENUM64, true) => "LL",
                (ENUM64, false) => "ULL",
                _ => "",
            };
            let value = if head.has_bit_fields { value.to_string() } else { (value as u64).to_string() };
            let _ = write!(text, "\n{}{label} = {value}{suffix},", tabs(depth + 1));
        }
        let _ = write!(text, "\n{}}}", tabs(depth));
        text.push_str(match head.size {
            1 => " __attribute__((mode(byte)))",
            8 if head.kind == ENUM => " __attribute__((mode(word)))",
            _ => "",
        });
    }

    /// `struct fd`, `union sigval`, `enum pid_type`: each name with the definition of its type, in the order of their names.
    pub(crate) fn definitions(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let mut found = std::collections::BTreeMap::new();
        for id in 1..self.types.len() as u32 {
            let Some(head) = self.head(id) else { continue };
            let word = match head.kind {
                STRUCT => "struct",
                UNION => "union",
                ENUM | ENUM64 => "enum",
                _ => continue,
            };
            let name = format!("{word} {}", self.name(head.name));
            if head.name == 0 || found.contains_key(&name) || !is_wanted(&name) {
                continue;
            }
            let mut text = String::new();
            match head.kind {
                STRUCT | UNION => self.emit_record(&mut text, id, &head, 0),
                _ => self.emit_enum(&mut text, &head, 0),
            }
            found.insert(name, text);
        }
        found.into_iter().collect()
    }

    /// Functions of the kernel with the types of their parameters, and what they return.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (&str, KernelFunction)> {
        (1..self.types.len() as u32).filter_map(|id| {
            let head = self.head(id).filter(|head| head.kind == FUNCTION)?;
            Some((self.name(head.name), KernelFunction(head.size)))
        })
    }

    /// Tracepoints by the types that the kernel declares for them, `btf_trace_sched_switch`, and those that only have a
    /// function, `__probestub_sched_set_state_tp`.
    pub(crate) fn raw_tracepoints(&self) -> impl Iterator<Item = (&str, KernelFunction)> {
        let typed = (1..self.types.len() as u32).filter_map(|id| {
            let head = self.head(id).filter(|head| head.kind == TYPEDEF)?;
            let name = self.name(head.name).strip_prefix("btf_trace_")?;
            let pointer = self.head(head.size).filter(|pointer| pointer.kind == POINTER)?;
            Some((name, KernelFunction(pointer.size)))
        });
        // The function has the names of the parameters, which the type has not.
        typed.chain(
            self.functions()
                .filter_map(|(name, function)| Some((name.strip_prefix("__probestub_")?, function))),
        )
    }

    /// The type and the name of each parameter, then what is returned, if anything is.
    pub(crate) fn signature(&self, function: KernelFunction) -> Option<(Vec<[String; 2]>, Option<String>)> {
        let head = self.head(function.0).filter(|head| head.kind == PROTOTYPE)?;
        let parameters = self.parameters_of(&head).into_iter();
        let shown = parameters.map(|(id, name)| match id {
            0 => ["...".to_owned(), name],
            id => [self.declaration(id, "", 0), name],
        });
        let returned = (head.size != 0).then(|| self.declaration(head.size, "", 0));
        Some((shown.collect(), returned))
    }
}

/// The number of its prototype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelFunction(u32);

fn emit_name(text: &mut String, name: &str, is_after_pointer: bool) {
    if !name.is_empty() && !is_after_pointer {
        text.push(' ');
    }
    text.push_str(name);
}

fn tabs(depth: usize) -> String {
    "\t".repeat(depth)
}
