//! A script as a tree: what was written, with names not yet looked up and types not yet known.

pub(crate) mod expand;
pub(crate) mod scope;
mod type_params;
pub(crate) mod walk;

use crate::catalog::PointSpec;
use crate::ctype::{CType, Records};
use crate::diagnostic::Span;
use nopal_program::{Limits, Look, Room, StackForm};

/// What the script may do, and how it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Every process that has a file is traced: stacks are those that the kernel finds by frame pointers.
    pub has_kernel_stacks: bool,
    /// Whether `bench:NAME` clauses are to be measured.
    pub is_bench: bool,
    /// Memory that cannot be read, and entries that are not there, are told of.
    pub has_helper_warnings: bool,
    /// So are entries that are to be deleted and are not there.
    pub has_delete_warnings: bool,
    /// Pointers in maps are shown as numbers.
    pub has_plain_pointers: bool,
    /// `system` and the like are allowed.
    pub is_unsafe: bool,
    /// Settings from outside, such as those of `BPFTRACE_*` variables; the script's own `config` goes before them.
    pub settings: Vec<(String, String)>,
    /// Bytes of records of the kernel that stand within records of the script: see [`embedded_records`](crate::embedded_records).
    pub kernel_records: Vec<(String, u64)>,
    /// Numbers that headers define, as by `#define`.
    pub defines: Vec<(String, String)>,
    /// `--name` and `--name=value`, for `getopt`.
    pub named: Vec<String>,
    /// Points of the kernel, which every process hits, are those of these processes alone; empty for all.
    pub only_pids: Vec<u32>,
    pub look: Look,
    /// The map whose number is the time of each hit for `tseries`, instead of when it was.
    pub time_map: Option<String>,
}

/// What becomes of a probe that is not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum MissingProbes {
    #[default]
    Error,
    Warn,
    Ignore,
}

/// `let @map = lruhash(100)`.
#[derive(Debug, Clone)]
pub(crate) struct DeclaredMap {
    pub name: String,
    pub room: Room,
    pub span: Span,
}

/// A script that has been read. [`compile`](crate::compile) makes a program of it.
#[derive(Debug, Clone)]
pub struct Script {
    pub(crate) clauses: Vec<Clause>,
    /// One for each entry of a clause's list, in the order of the script.
    pub(crate) specs: Vec<PointSpec>,
    pub(crate) records: Records,
    pub(crate) limits: Limits,
    pub(crate) options: Options,
    pub(crate) parameters: Vec<String>,
    pub(crate) declared: Vec<DeclaredMap>,
    pub(crate) spans: Vec<DeclaredSpan>,
    pub(crate) missing_probes: MissingProbes,
    /// Whether `uprobe` is hit where its function was put into others, too.
    pub(crate) probes_inlined: bool,
    pub(crate) license: &'static str,
    /// Of stacks that do not say otherwise.
    pub(crate) stack_form: StackForm,
}

impl Script {
    /// The points the script names, in its order.
    pub fn specs(&self) -> &[PointSpec] {
        &self.specs
    }

    /// What `getopt` asks for: names, each once, and what is said of them.
    pub fn named_parameters(&self) -> Vec<(String, Option<String>)> {
        let text = |expr: Option<&Expr>| match expr.map(|expr| &expr.kind) {
            Some(ExprKind::Str(text)) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        };
        let mut found: Vec<(String, Option<String>)> = Vec::new();
        for clause in &self.clauses {
            walk::calls(clause, "getopt", |args| {
                if let Some(name) = text(args.first())
                    && !found.iter().any(|(known, _)| *known == name)
                {
                    found.push((name, text(args.get(2))));
                }
            });
        }
        found
    }

    /// Leaves out the points whose names, as the script has them, are not wanted, and bodies without points. BEGIN and END stay.
    /// Returns how many points are left.
    pub fn keep_points(&mut self, is_wanted: impl Fn(&str) -> bool) -> usize {
        let specs = &self.specs;
        let is_kept = |place: &PointRef| {
            let spec = &specs[place.spec];
            let parts = spec.parts.iter().map(|part| format!(":{part}"));
            matches!(spec.kind.as_str(), "BEGIN" | "END")
                || is_wanted(&format!("{}{}", spec.kind, parts.collect::<String>()))
        };
        self.clauses.iter_mut().for_each(|clause| clause.points.retain(is_kept));
        self.clauses.retain(|clause| !clause.points.is_empty());
        self.clauses.iter().map(|clause| clause.points.len()).sum()
    }

    /// Whether a body or a predicate uses this builtin.
    pub fn names(&self, builtin: &str) -> bool {
        self.clauses.iter().any(|clause| walk::names(clause, |name| name == builtin))
    }
}

/// What a `latency()` declares.
#[derive(Debug, Clone)]
pub(crate) struct DeclaredSpan {
    /// Of the map that durations go into.
    pub map: String,
    pub is_by_thread: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Clause {
    pub points: Vec<PointRef>,
    pub predicate: Option<Expr>,
    pub body: Vec<Stmt>,
}

/// Index in [`Script::specs`] and where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointRef {
    pub spec: usize,
    pub span: Span,
}

#[derive(Debug, Clone)]
pub(crate) struct Stmt {
    pub kind: StmtKind,
    pub span: Span,
}

#[derive(Debug, Clone)]
pub(crate) enum StmtKind {
    Expr(Expr),
    /// `$x = value`, and with an operator `$x += value`.
    AssignVar {
        name: String,
        op: Option<BinaryOp>,
        value: Expr,
        target: Span,
    },
    AssignMap {
        map: MapRef,
        op: Option<BinaryOp>,
        value: Expr,
    },
    /// `let $x`, `let $x: int64 = 1`.
    Let {
        name: String,
        declared: Option<Declared>,
        value: Option<Expr>,
        target: Span,
    },
    If {
        condition: Expr,
        then: Vec<Stmt>,
        otherwise: Vec<Stmt>,
    },
    While {
        condition: Expr,
        body: Vec<Stmt>,
    },
    Unroll {
        count: Expr,
        body: Vec<Stmt>,
    },
    /// `for ($kv : @map)`.
    ForMap {
        variable: String,
        map: String,
        map_span: Span,
        body: Vec<Stmt>,
    },
    /// `for ($i : 0..10)`.
    ForRange {
        variable: String,
        from: Expr,
        to: Expr,
        body: Vec<Stmt>,
    },
    /// A span of [`Script::spans`] begins or ends.
    SpanEdge {
        span: usize,
        is_end: bool,
        keys: Vec<Expr>,
    },
    Block(Vec<Stmt>),
    Break,
    Continue,
    Return,
}

/// `@name[keys]`; without brackets no keys.
#[derive(Debug, Clone)]
pub(crate) struct MapRef {
    /// With its `@`.
    pub name: String,
    pub keys: Vec<Expr>,
    pub span: Span,
}

/// What `let` says of a variable.
#[derive(Debug, Clone)]
pub(crate) enum Declared {
    Type(CType),
    /// `typeof(value)`.
    Like(Expr),
}

#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub kind: ExprKind,
    pub span: Span,
    /// Levels of the tree below and with this one; the parser keeps it small.
    pub depth: u16,
}

#[derive(Debug, Clone)]
pub(crate) enum ExprKind {
    Int {
        value: i64,
        is_signed: bool,
    },
    Str(Vec<u8>),
    /// `$1`.
    Param(usize),
    /// `$#`.
    ParamCount,
    /// A builtin or the label of an enum.
    Name(String),
    Var(String),
    Map(MapRef),
    Call {
        name: String,
        name_span: Span,
        args: Vec<Expr>,
    },
    /// `base.name`, `base->name`.
    Member {
        base: Box<Expr>,
        name: String,
        is_arrow: bool,
        name_span: Span,
    },
    /// `base.0`.
    TupleMember {
        base: Box<Expr>,
        index: u32,
    },
    Index {
        base: Box<Expr>,
        index: Box<Expr>,
    },
    Unary {
        op: UnaryOp,
        operand: Box<Expr>,
    },
    Binary {
        op: BinaryOp,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Ternary {
        condition: Box<Expr>,
        then: Box<Expr>,
        otherwise: Box<Expr>,
    },
    Cast {
        to: CType,
        operand: Box<Expr>,
    },
    /// `{ statements; value }`.
    Block {
        body: Vec<Stmt>,
        value: Option<Box<Expr>>,
        /// Of a macro's body: where the script calls it.
        call: Option<Span>,
    },
    Tuple(Vec<Expr>),
    /// `(a = 1, b = 2)`.
    Record(Vec<(String, Expr)>),
    /// `++` and `--`, of a variable or an entry of a map.
    Step {
        target: Box<Expr>,
        by: i64,
        is_prefix: bool,
    },
    SizeofType(CType),
    SizeofExpr(Box<Expr>),
    /// `typeof(type)`: a type where a value might be, to be given to a macro.
    Type(CType),
    /// `&$x`.
    AddressOf(Box<Expr>),
    /// `typeof(value)`.
    TypeOf(Box<Expr>),
    /// `type*`, where the name of the type is a macro's parameter.
    PointerType(Box<Expr>),
    /// `(type*)operand`, likewise.
    CastTo {
        to: Box<Expr>,
        operand: Box<Expr>,
    },
    Offsetof {
        record: CType,
        path: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnaryOp {
    Neg,
    BitNot,
    Not,
    Deref,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    BitAnd,
    BitOr,
    BitXor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
}

impl BinaryOp {
    pub(crate) fn text(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Rem => "%",
            BinaryOp::BitAnd => "&",
            BinaryOp::BitOr => "|",
            BinaryOp::BitXor => "^",
            BinaryOp::Shl => "<<",
            BinaryOp::Shr => ">>",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::And => "&&",
            BinaryOp::Or => "||",
        }
    }

    pub(crate) fn is_comparison(self) -> bool {
        matches!(
            self,
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge
        )
    }
}
