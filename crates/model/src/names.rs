//! Names become numbers here, once, at the edge.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::ids::{AgentId, GroupId, ResourceId, SkillId, UserId, ZoneId};

/// An id that stands for a name.
pub trait NameId: Copy {
    /// What the name names, for messages: "skill".
    const NOUN: &'static str;
    /// The id with this number.
    fn from_number(number: u32) -> Self;
    /// The number of the id.
    fn number(self) -> u32;
    /// The same id in a table whose numbers begin at `base`; most ids never leave their table, and stay what they are.
    #[must_use]
    fn counted_from(self, base: u64) -> Self {
        let _ = base;
        self
    }
    /// The number of an id of such a table.
    fn number_from(self, base: u64) -> u32 {
        let _ = base;
        self.number()
    }
}

macro_rules! name_ids {
    ($($id:ident $noun:literal),*) => {$(
        impl NameId for $id {
            const NOUN: &'static str = $noun;
            fn from_number(number: u32) -> Self { Self(number) }
            fn number(self) -> u32 { self.0 }
        }
    )*};
}

name_ids!(SkillId "skill", ResourceId "resource", GroupId "group", UserId "user", ZoneId "zone");

/// The first agent has number 1: number 0 is nobody.
impl NameId for AgentId {
    const NOUN: &'static str = "agent";

    fn from_number(number: u32) -> Self {
        Self(u64::from(number) + 1)
    }

    fn number(self) -> u32 {
        self.number_from(0)
    }

    fn counted_from(self, base: u64) -> Self {
        Self(self.0 + base)
    }

    fn number_from(self, base: u64) -> u32 {
        u32::try_from(self.0.wrapping_sub(base).wrapping_sub(1)).unwrap_or(u32::MAX)
    }
}

/// A text that cannot be a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing but white space.
    #[error("a {0} name is empty")]
    Empty(&'static str),
    /// Longer than [`Names::LONGEST`] bytes.
    #[error("a {0} name is longer than {max} bytes", max = Names::<SkillId>::LONGEST)]
    TooLong(&'static str),
    /// A line break, a tab or another control character.
    #[error("a {0} name holds a control character")]
    Control(&'static str),
}

/// A two-way table between names and ids. The first name gets number 0, and so on.
///
/// ```
/// use loxley_model::{Names, SkillId};
/// let mut skills = Names::<SkillId>::new();
/// let python = skills.intern("python")?;
/// assert_eq!(skills.intern("python")?, python);
/// assert_eq!(skills.name(python), Some("python"));
/// assert!(skills.intern(" ").is_err());
/// # Ok::<(), loxley_model::NameError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Names<Id> {
    names: Vec<Arc<str>>,
    numbers: BTreeMap<Arc<str>, u32>,
    /// What is added to the number of an agent.
    base: u64,
    kind: PhantomData<Id>,
}

impl<Id> Default for Names<Id> {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            numbers: BTreeMap::new(),
            base: 0,
            kind: PhantomData,
        }
    }
}

impl<Id> Names<Id> {
    /// The longest name, in bytes.
    pub const LONGEST: usize = 256;
}

impl<Id: NameId> Names<Id> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The id of `name`, a new one if it was never seen.
    pub fn intern(&mut self, name: &str) -> Result<Id, NameError> {
        let name = check_name::<Id>(name)?;
        if let Some(number) = self.numbers.get(name) {
            return Ok(self.of_number(*number));
        }
        let number =
            u32::try_from(self.names.len()).expect("fewer than four thousand million names");
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        Ok(self.of_number(number))
    }

    /// Has the numbers of agents begin at `base`: the first is one more.
    ///
    /// # Panics
    /// When a number was given out before.
    pub fn count_from(&mut self, base: u64) {
        assert!(self.names.is_empty(), "a number that was given out stays");
        self.base = base;
    }

    fn of_number(&self, number: u32) -> Id {
        Id::from_number(number).counted_from(self.base)
    }

    /// The id of `name` if it is known.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<Id> {
        self.numbers
            .get(name.trim())
            .map(|number| self.of_number(*number))
    }

    /// The name behind an id of this table.
    #[must_use]
    pub fn name(&self, id: Id) -> Option<&str> {
        self.names
            .get(id.number_from(self.base) as usize)
            .map(|name| &**name)
    }

    /// As [`name`](Self::name), to be kept.
    #[must_use]
    pub fn shared(&self, id: Id) -> Option<Arc<str>> {
        self.names.get(id.number_from(self.base) as usize).cloned()
    }

    /// All names, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &str)> {
        self.names
            .iter()
            .zip(0..)
            .map(|(name, number)| (self.of_number(number), &**name))
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no name yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

fn check_name<Id: NameId>(name: &str) -> Result<&str, NameError> {
    let name = name.trim();
    if name.is_empty() {
        return Err(NameError::Empty(Id::NOUN));
    }
    if name.len() > Names::<Id>::LONGEST {
        return Err(NameError::TooLong(Id::NOUN));
    }
    if name.chars().any(char::is_control) {
        return Err(NameError::Control(Id::NOUN));
    }
    Ok(name)
}
