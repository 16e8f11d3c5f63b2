//! Parameters of a query, decoded as forms are: `?a=b` and `?%61=%62` are one.

/// The value of the parameter `name`, given to `take`; `None` if it is absent, or there are several,
/// of which an upstream may use any.
pub(super) fn only<T>(query: Option<&str>, name: &str, take: impl FnOnce(&str) -> T) -> Option<T> {
    let mut values = form_urlencoded::parse(query?.as_bytes()).filter(|(key, _)| key == name);
    let (_, value) = values.next()?;
    values.next().is_none().then(|| take(&value))
}
