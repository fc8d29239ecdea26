//! Events, and recordings at rest in the Common Trace Format.
