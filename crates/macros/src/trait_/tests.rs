//! Refused traits, and their error messages.

use super::*;
use syn::parse_str;

fn read(text: &str) -> Result<Trait> {
    Trait::read(&mut parse_str(text)?)
}

fn refused(text: &str) -> String {
    match read(&format!("trait T {{ {text} }}")) {
        Ok(_) => panic!("taken: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn more_than_four_rights_are_refused_on_either_way() {
    let five =
        "fn f(&self, a: (Right, Right), b: Option<SendRight>, c: handfast::OwnRight, d: Right);";
    assert!(refused(five).contains("at most 4 rights, and this one has 5"));
    let five = "fn f(&self) -> Result<(Right, Right, Right), (Right, Right, Right, Right, Right)>;";
    assert!(refused(five).contains("at most 4 rights, and this one has 5"));
    let four = "trait T { fn f(&self, a: (Right, Right, Right), b: Right) -> Result<(Right, u8, Right), \
                (Right, Right, Right, Right)>; }";
    assert_eq!(read(four).unwrap().methods[0].rights(), 4);
}

#[test]
fn rights_travel_by_value_and_in_nothing_that_is_not_looked_into() {
    for ty in [
        "&SendRight",
        "Vec<OwnRight>",
        "&[SendRight]",
        "[SendRight; 2]",
    ] {
        let text = refused(&format!("fn f(&self, a: {ty});"));
        assert!(text.contains("a right travels by value"), "{ty}: {text}");
    }
}

#[test]
fn what_no_caller_in_another_program_can_mean_is_refused() {
    for (method, why) in [
        ("fn f<T>(&self, a: T);", "no generic parameters"),
        ("fn f<'a>(&self, a: &'a str);", "named lifetimes"),
        ("fn f(&mut self);", "takes &self"),
        ("fn f(self);", "takes &self"),
        ("fn f(self: Box<Self>);", "takes &self"),
        ("fn f(a: u8);", "takes &self"),
        ("fn f();", "takes &self"),
        ("fn f(&self, (a, b): (u8, u8));", "has a name"),
        ("fn f(&self, a: &mut u8);", "is a copy"),
        ("fn f(&self) -> &str;", "owns what is in it"),
        ("fn f(&self) -> Vec<&str>;", "owns what is in it"),
        ("fn f(&self, a: &'static str);", "leave the lifetime out"),
        (
            "fn f(&self, a: Vec<&'static str>);",
            "leave the lifetime out",
        ),
        ("#[fixed] fn f(&self, a: &str);", "leave #[fixed] out"),
        ("#[fixed] fn f(&self, a: &[u8]);", "leave #[fixed] out"),
        ("fn f(&self) where Self: Sized;", "no where clause"),
        ("unsafe fn f(&self);", "safe to call"),
        ("fn f(&self, a: impl Copy);", "name it"),
        ("fn f(&self) -> impl Future<Output = u8>;", "name it"),
        ("fn f(&self, a: &dyn Debug);", "name it"),
        ("fn f(&self) -> !;", "leave `-> !` out"),
        ("fn f(&self) -> Option<Self>;", "name the type"),
        ("fn f(&self, _: u8);", "has a name"),
        ("fn f(&self, #[cfg(unix)] a: u8);", "always there"),
        ("fn r#new(&self);", "take another one"),
        ("fn f(&self, a: (&str, u8));", "only whole arguments"),
        ("fn new(&self);", "take another one"),
        ("fn with_timeout(&self);", "take another one"),
        ("#[oneway] fn f(&self) -> u8;", "nothing comes back"),
        ("#[cfg(unix)] fn f(&self);", "change the others' numbers"),
        ("const A: u8;", "methods only"),
        ("type A;", "methods only"),
    ] {
        let text = refused(method);
        assert!(text.contains(why), "{method}: {text}");
    }
    let text = read("trait T<A> {}").err().unwrap().to_string();
    assert!(text.contains("no generic parameters"), "{text}");
}

#[test]
fn attributes_that_are_meant_for_this_are_taken_out_and_others_stay() {
    let text = "trait T { /// Text.\n #[oneway] #[fixed] #[must_use] fn f(&self, a: u8); }";
    let mut item = parse_str(text).unwrap();
    let service = Trait::read(&mut item).unwrap();
    assert!(service.methods[0].is_one_way);
    assert_eq!(service.methods[0].docs.len(), 1);
    let TraitItem::Fn(method) = &item.items[0] else {
        panic!("no method");
    };
    assert_eq!(method.attrs.len(), 2);
}

#[test]
fn the_fingerprint_depends_on_signatures_and_not_on_names_of_arguments() {
    let of = |text: &str| {
        read(&format!("trait {text}"))
            .unwrap()
            .fingerprint()
            .to_string()
    };
    let one = of("T { fn f(&self, a: u8) -> String; }");
    assert_eq!(
        one,
        of("T { /** Text. */ fn f(&self, other: u8,) -> String { todo() } }")
    );
    for other in [
        "U { fn f(&self, a: u8) -> String; }",
        "T { fn g(&self, a: u8) -> String; }",
        "T { fn f(&self, a: u16) -> String; }",
        "T { fn f(&self, a: u8) -> Vec<u8>; }",
        "T { fn f(&self, a: u8); }",
        "T { fn f(&self) -> String; }",
        "T { fn f(&self, a: u8) -> String; fn g(&self); }",
        "T { #[fixed] fn f(&self, a: u8) -> String; }",
    ] {
        assert_ne!(one, of(other), "{other}");
    }
    assert_ne!(of("T { fn f(&self); }"), of("T { #[oneway] fn f(&self); }"));
}
