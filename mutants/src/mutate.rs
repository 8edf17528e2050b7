//! Finds places in a source file where a small bug can be put in, and puts it there behind a switch.
//!
//! Nothing is taken out and no line is added: `a < b` becomes `crate::swap!(7, (a), <, <=, (b))`, which is `a <= b` when
//! the mutant with number 7 is on. So one build holds all of them, and the lines of a compiler error name its mutants.

use anyhow::{Context, Result, ensure};
use proc_macro2::{LineColumn, Span};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ReturnType, Type, UnOp};

/// A small bug.
#[derive(Debug, Clone)]
pub(crate) struct Mutant {
    pub(crate) number: usize,
    /// Relative to the root of the repository.
    pub(crate) file: String,
    pub(crate) line: usize,
    /// The function it is in.
    pub(crate) function: String,
    /// What is changed, in a few words. Unique within the function, so that it can be named in a list.
    pub(crate) what: String,
    edits: Vec<Edit>,
}

impl Mutant {
    /// How lists name it: lines change too often.
    pub(crate) fn name(&self) -> String {
        format!("{} {}: {}", self.file, self.function, self.what)
    }
}

/// Text that goes in at a place, or takes the place of an operator.
#[derive(Debug, Clone)]
struct Edit {
    at: usize,
    /// How much of the text it replaces.
    replaced: usize,
    /// Among edits at one place: what closes comes first, the innermost before; then what opens, the outermost before.
    order: (bool, isize),
    text: String,
}

/// All mutants of a file.
pub(crate) fn mutants_of(file: &str, text: &str) -> Result<Vec<Mutant>> {
    let tree = syn::parse_file(text).with_context(|| format!("cannot parse {file}"))?;
    let lines = text.split_inclusive('\n').scan(0, |at, line| {
        *at += line.len();
        Some(*at - line.len())
    });
    let mut finder = Finder {
        text,
        lines: lines.collect(),
        file,
        function: String::new(),
        mutants: Vec::new(),
    };
    finder.visit_file(&tree);
    for index in 1..finder.mutants.len() {
        // The same change twice in one function: the second is told from the first.
        let same = finder.mutants[..index].iter();
        let mutant = &finder.mutants[index];
        let twins = same.filter(|other| {
            other.function == mutant.function
                && other.what.split(" #").next() == Some(mutant.what.as_str())
        });
        let twins = twins.count();
        if twins > 0 {
            finder.mutants[index].what += &format!(" #{}", twins + 1);
        }
    }
    Ok(finder.mutants)
}

/// A bug that somebody wrote down: `old` becomes `new`. Both are whole expressions or statements.
pub(crate) fn planted(file: &str, text: &str, what: &str, old: &str, new: &str) -> Result<Mutant> {
    let at = text
        .find(old)
        .with_context(|| format!("`{old}` is not in {file}"))?;
    ensure!(
        text[at + 1..].find(old).is_none(),
        "`{old}` is in {file} twice"
    );
    let edit = |at, order, text: String| Edit {
        at,
        replaced: 0,
        order,
        text,
    };
    let size = old.len() as isize;
    let before = format!("{{ if crate::mutants::on(NUMBER) {{ {new} }} else {{ ");
    Ok(Mutant {
        number: 0,
        file: file.to_owned(),
        line: text[..at].lines().count(),
        function: "planted".to_owned(),
        what: what.to_owned(),
        edits: vec![
            edit(at, (true, -size), before),
            edit(at + old.len(), (false, size), " } }".to_owned()),
        ],
    })
}

/// The text with these mutants in it.
pub(crate) fn apply<'a>(text: &str, mutants: impl Iterator<Item = &'a Mutant>) -> String {
    let mut edits: Vec<Edit> = Vec::new();
    for mutant in mutants {
        let number = mutant.number.to_string();
        edits.extend(mutant.edits.iter().map(|edit| Edit {
            text: edit.text.replace("NUMBER", &number),
            ..edit.clone()
        }));
    }
    edits.sort_by_key(|edit| (edit.at, edit.order));
    let (mut out, mut done) = (String::new(), 0);
    for edit in edits {
        out += &text[done..edit.at];
        out += &edit.text;
        done = edit.at + edit.replaced;
    }
    out + &text[done..]
}

/// Functions that only say whether books agree, or print: no decision depends on them.
const NOT_DECIDING: &[&str] = &[
    "verify",
    "agrees",
    "fronts_agree",
    "nobody_idles",
    "leaves_work_to",
    "fmt",
    "look_ahead",
    "warm",
];

struct Finder<'a> {
    text: &'a str,
    /// Where each line begins.
    lines: Vec<usize>,
    file: &'a str,
    function: String,
    mutants: Vec<Mutant>,
}

impl Finder<'_> {
    fn offset(&self, at: LineColumn) -> usize {
        let line = self.lines[at.line - 1];
        let rest = &self.text[line..];
        line + rest
            .chars()
            .take(at.column)
            .map(char::len_utf8)
            .sum::<usize>()
    }

    fn range(&self, span: Span) -> (usize, usize) {
        (self.offset(span.start()), self.offset(span.end()))
    }

    /// Text before and after a piece of the source.
    fn around(&self, span: Span, before: String, after: &str) -> Vec<Edit> {
        let (start, end) = self.range(span);
        let size = (end - start) as isize;
        let edit = |at, order, text| Edit {
            at,
            replaced: 0,
            order,
            text,
        };
        vec![
            edit(start, (true, -size), before),
            edit(end, (false, size), after.to_owned()),
        ]
    }

    fn add(&mut self, span: Span, what: String, edits: Vec<Edit>) {
        let mut what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        if what.chars().count() > 90 {
            what = what.chars().take(90).chain(['…']).collect();
        }
        self.mutants.push(Mutant {
            number: 0,
            file: self.file.to_owned(),
            line: span.start().line,
            function: self.function.clone(),
            what,
            edits,
        });
    }

    fn source(&self, span: Span) -> &str {
        let (start, end) = self.range(span);
        &self.text[start..end]
    }

    fn swap_operator(&mut self, whole: &syn::ExprBinary, other: &str) {
        let (op, number) = (self.source(whole.op.span()).to_owned(), "NUMBER");
        let mut edits = self.around(whole.span(), format!("crate::swap!({number}, ("), "))");
        let (at, end) = self.range(whole.op.span());
        edits.push(Edit {
            at,
            replaced: end - at,
            order: (true, 0),
            text: format!("), {op}, {other}, ("),
        });
        let what = format!("`{}` with {other}", self.source(whole.span()));
        self.add(whole.op.span(), what, edits);
    }

    /// A condition that is made true, false or the opposite.
    fn bend(&mut self, condition: &Expr, before: &str, what: &str) {
        if has_let(condition) {
            return;
        }
        let edits = self.around(condition.span(), format!("({before}("), "))");
        let what = format!("`{}` {what}", self.source(condition.span()));
        self.add(condition.span(), what, edits);
    }

    fn replace_result(&mut self, output: &ReturnType, block: &syn::Block) {
        let values: &[&str] = match output {
            ReturnType::Default => &["()"],
            ReturnType::Type(_, kind) => match name_of(kind).as_deref() {
                Some("bool") => &["true", "false"],
                Some("u8" | "u16" | "u32" | "u64" | "usize" | "i64") => &["0", "1"],
                Some("f64") => &["0.0", "1.0"],
                Some("Option") => &["None"],
                _ => &[],
            },
        };
        if block.stmts.is_empty() {
            return;
        }
        for value in values {
            let text = format!(" if crate::mutants::on(NUMBER) {{ return {value}; }}");
            let open = block.brace_token.span.open();
            let edit = Edit {
                at: self.range(open).1,
                replaced: 0,
                order: (true, isize::MIN),
                text,
            };
            self.add(open, format!("returns {value}"), vec![edit]);
        }
    }

    fn in_function(
        &mut self,
        signature: &syn::Signature,
        block: &syn::Block,
        attributes: &[syn::Attribute],
    ) {
        let name = signature.ident.to_string();
        let is_const = signature.constness.is_some();
        if is_const || is_for_tests(attributes) || NOT_DECIDING.contains(&name.as_str()) {
            return;
        }
        let outer = std::mem::replace(&mut self.function, name);
        self.replace_result(&signature.output, block);
        visit::visit_block(self, block);
        self.function = outer;
    }
}

fn name_of(kind: &Type) -> Option<String> {
    match kind {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let mut lists = attributes
        .iter()
        .filter_map(|attribute| attribute.meta.require_list().ok());
    lists.any(|list| list.path.is_ident("cfg") && list.tokens.to_string().contains("test"))
        || attributes
            .iter()
            .any(|attribute| attribute.path().is_ident("test"))
}

fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_type(&mut self, _: &'ast Type) {}

    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.in_function(&item.sig, &item.block, &item.attrs);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.in_function(&item.sig, &item.block, &item.attrs);
    }

    fn visit_expr_binary(&mut self, whole: &'ast syn::ExprBinary) {
        let other = match whole.op {
            BinOp::Lt(_) => "<=",
            BinOp::Le(_) => "<",
            BinOp::Gt(_) => ">=",
            BinOp::Ge(_) => ">",
            BinOp::Eq(_) => "!=",
            BinOp::Ne(_) => "==",
            BinOp::Add(_) => "-",
            BinOp::Sub(_) => "+",
            BinOp::Mul(_) => "/",
            BinOp::Div(_) => "*",
            BinOp::AddAssign(_) => "-=",
            BinOp::SubAssign(_) => "+=",
            BinOp::And(_) => {
                self.bend(
                    &whole.left,
                    "crate::mutants::on(NUMBER) || ",
                    "always holds",
                );
                self.bend(
                    &whole.right,
                    "crate::mutants::on(NUMBER) || ",
                    "always holds",
                );
                ""
            }
            BinOp::Or(_) => {
                self.bend(
                    &whole.left,
                    "!crate::mutants::on(NUMBER) && ",
                    "never holds",
                );
                self.bend(
                    &whole.right,
                    "!crate::mutants::on(NUMBER) && ",
                    "never holds",
                );
                ""
            }
            _ => "",
        };
        if !other.is_empty() {
            self.swap_operator(whole, other);
        }
        visit::visit_expr_binary(self, whole);
    }

    fn visit_expr_unary(&mut self, whole: &'ast syn::ExprUnary) {
        if matches!(whole.op, UnOp::Not(_)) {
            let edits = self.around(
                whole.span(),
                "(crate::mutants::on(NUMBER) ^ ".to_owned(),
                ")",
            );
            let what = format!("`{}` without !", self.source(whole.span()));
            self.add(whole.span(), what, edits);
        }
        visit::visit_expr_unary(self, whole);
    }

    fn visit_expr_if(&mut self, whole: &'ast syn::ExprIf) {
        if !matches!(*whole.cond, Expr::Binary(_) | Expr::Unary(_) | Expr::Let(_)) {
            self.bend(
                &whole.cond,
                "crate::mutants::on(NUMBER) ^ ",
                "the other way",
            );
        }
        visit::visit_expr_if(self, whole);
    }
}
