//! Providers: probes are added to them, and they are loaded and unloaded as a whole.

use crate::error::{Error, Result};
use crate::fork;
use crate::loaded::Loaded;
use crate::object::{self, Form, Machine};
use crate::probe::{MAX_OPERANDS, RawProbe};
use crate::types::Argument;
use crate::value::{Arguments, Probe};
use std::collections::HashSet;
use std::ffi::{CStr, c_char};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A provider of probes. It is a handle: clones are the same provider, and it is unloaded for good when the last of them
/// and of its probes is dropped.
///
/// Several providers of one name are allowed; tracers see the probes of all.
#[derive(Debug, Clone)]
pub struct Provider(Arc<Owner>);

/// A probe of a provider, whose types are not known to the compiler.
#[derive(Debug, Clone)]
pub struct AnyProbe {
    probe: NonNull<RawProbe>,
    _owner: Arc<Owner>,
}

// SAFETY: it gives shared access to a probe, all of which is atomic or never changes.
unsafe impl Send for AnyProbe {}
// SAFETY: the same.
unsafe impl Sync for AnyProbe {}

impl Deref for AnyProbe {
    type Target = RawProbe;

    #[inline(always)]
    fn deref(&self) -> &RawProbe {
        // SAFETY: the owner keeps its probes in boxes until it is dropped, and this has a share in it.
        unsafe { self.probe.as_ref() }
    }
}

#[derive(Debug)]
struct Owner {
    name: String,
    form: Form,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Boxed, because handles point to them. In the order in which they were added, which is also that of the objects.
    #[expect(clippy::vec_box)]
    probes: Vec<Box<RawProbe>>,
    names: HashSet<String>,
    objects: Vec<Loaded>,
    /// How many of the probes are in objects.
    n_made: usize,
    is_loaded: bool,
}

impl Owner {
    /// The caller holds the lock of all providers: whoever takes this one has that one, so that nobody ever waits here.
    fn state(&self, _lock: &fork::Names) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provider {
    pub fn new(name: &str) -> Result<Provider> {
        check_name(name)?;
        Ok(Provider::of(name, Form::TwoDoors))
    }

    /// A provider as libstapsdt makes them: names are whatever the program says, and a tracer that listens to a probe
    /// changes the first byte of its site. A name ends before its first NUL.
    pub fn like_libstapsdt(name: &str) -> Provider {
        Provider::of(before_nul(name), Form::FirstByte)
    }

    fn of(name: &str, form: Form) -> Provider {
        Provider(Arc::new(Owner { name: name.to_owned(), form, state: Mutex::default() }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Adds a probe with arguments of the types `A`, a tuple. It can be seen and fired after the next [`Provider::load`];
    /// probes that are loaded already stay where they are.
    ///
    /// ```compile_fail,E0080
    /// # let app = nopal_runtime::Provider::new("app").unwrap();
    /// // Text takes two of the twelve operands that tracers read.
    /// app.probe::<(&str, &str, &str, &str, &str, &str, u8)>("many", ["a", "b", "c", "d", "e", "f", "g"]);
    /// ```
    pub fn probe<A: Arguments>(&self, name: &str, argument_names: A::Names<'_>) -> Result<Probe<A>> {
        const { assert!(A::N_OPERANDS <= MAX_OPERANDS, "text and bytes take two of at most 12 operands") }
        let names = argument_names.as_ref().iter();
        let arguments = names.zip(A::TYPES).map(|(name, type_)| Argument::new(*name, *type_)).collect();
        self.add(name, arguments).map(Probe::new)
    }

    /// The same with arguments that are known only now.
    pub fn add(&self, name: &str, arguments: Vec<Argument>) -> Result<AnyProbe> {
        let names = fork::lock();
        let mut state = self.0.state(&names);
        if state.names.contains(name) {
            return Err(Error::Taken { provider: self.0.name.clone(), name: name.to_owned() });
        }
        check_name(name)?;
        for argument in &arguments {
            check_name(&argument.name)?;
        }
        self.push(&mut state, name, arguments, true)
    }

    /// The same without names of arguments, so that there is no nopal note; and the probe's name may be taken, or any text.
    pub fn add_unnamed(&self, name: &str, types: &[crate::Type]) -> Result<AnyProbe> {
        let names = fork::lock();
        let mut state = self.0.state(&names);
        let name = before_nul(name);
        let arguments = types.iter().map(|type_| Argument::new("", *type_)).collect();
        self.push(&mut state, name, arguments, false)
    }

    fn push(
        &self,
        state: &mut State,
        name: &str,
        arguments: Vec<Argument>,
        is_described: bool,
    ) -> Result<AnyProbe> {
        let n_operands = arguments.iter().map(|argument| argument.type_.n_operands()).sum();
        if n_operands > MAX_OPERANDS {
            return Err(Error::TooManyOperands { probe: name.to_owned(), n_operands });
        }
        state.names.insert(name.to_owned());
        state.probes.push(Box::new(RawProbe::new(self.0.form, name.to_owned(), arguments, is_described)));
        let probe = state.probes.last().map(|probe| NonNull::from(&**probe)).ok_or(Error::NotLoaded)?;
        Ok(AnyProbe { probe, _owner: Arc::clone(&self.0) })
    }

    /// Makes all probes visible to tracers that are not yet so.
    pub fn load(&self) -> Result<()> {
        let mut names = fork::lock();
        let mut state = self.0.state(&names);
        let state = &mut *state;
        let fresh: Vec<_> = state.probes[state.n_made..]
            .iter()
            .map(|p| object::Probe { name: &p.name, arguments: &p.arguments, is_described: p.is_described })
            .collect();
        let is_new = !fresh.is_empty();
        if is_new {
            let object = object::make(Machine::HERE, self.0.form, &self.0.name, &fresh);
            let range = state.n_made..state.probes.len();
            let loaded = Loaded::new(&self.0.name, &object, range, &mut names)?;
            state.objects.push(loaded);
            state.n_made = state.probes.len();
        }
        // Of a loaded provider only what is new, so that adding and loading one probe after the other stays linear.
        let n_shown = if state.is_loaded { state.objects.len() - usize::from(is_new) } else { 0 };
        for object in &mut state.objects[n_shown..] {
            object.show()?;
        }
        for object in &state.objects[n_shown..] {
            let probes = &state.probes[object.first_probe..object.first_probe + object.n_probes];
            for (index, probe) in probes.iter().enumerate() {
                probe.set(object.site(index), object.semaphore(index));
            }
        }
        state.is_loaded = true;
        Ok(())
    }

    /// Hides all probes from tracers; they no longer fire. Loading makes them visible again, at the same addresses.
    pub fn unload(&self) {
        let names = fork::lock();
        let mut state = self.0.state(&names);
        state.probes.iter().for_each(|probe| probe.unset());
        state.objects.iter_mut().for_each(Loaded::hide);
        state.is_loaded = false;
    }

    pub fn is_loaded(&self) -> bool {
        let names = fork::lock();
        self.0.state(&names).is_loaded
    }

    /// Where tracers find the probes, `/proc/PID/fd/N`; of several objects the newest. `None` while nothing is loaded.
    pub fn path(&self) -> Option<String> {
        // SAFETY: a C string that lives as long as this provider.
        self.raw_path().map(|path| unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned())
    }

    /// The same as a C string that lives as long as this provider. In a forked child it changes to the child's pid.
    pub fn raw_path(&self) -> Option<*const c_char> {
        let names = fork::lock();
        let state = self.0.state(&names);
        state.objects.last().filter(|_| state.is_loaded).map(Loaded::path)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut names = fork::lock();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for object in state.objects.drain(..) {
            // SAFETY: only probes have addresses in it; handles to those hold a share in this owner, and so none is left.
            unsafe { object.close(&mut names) };
        }
    }
}

/// Notes end a name with a NUL.
fn before_nul(name: &str) -> &str {
    name.split('\0').next().unwrap_or("")
}

/// Names go into notes, into symbols, and into what users type: `provider:name`.
fn check_name(name: &str) -> Result<()> {
    let is_strange = |c: char| c.is_control() || c.is_whitespace() || c == ':';
    if name.is_empty() || name.len() > 200 || name.contains(is_strange) {
        return Err(Error::Name { name: name.chars().take(200).collect() });
    }
    Ok(())
}
