//! Services whose traits are written in ways that are allowed and rare.

use serde::{Deserialize, Serialize};

/// A name that a macro might have for a parameter of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct S(u8);

#[handfast::service]
trait Odd {
    fn named(&self, a: S, b: &S) -> Option<S>;
    fn r#type(&self, r#fn: u8, r#struct: &str) -> u8;
    /// Whose name is not to be warned of at its client either.
    #[allow(non_snake_case, reason = "it is there")]
    #[deprecated]
    fn oldName(&self, mut a: u8) -> u8 {
        a += 1;
        a
    }
    fn units(&self, a: (), b: Option<()>, c: Result<(), ()>, d: (u8,)) -> Result<(), Option<()>>;
}

struct Mine;

impl Odd for Mine {
    fn named(&self, a: S, b: &S) -> Option<S> {
        (a == *b).then_some(a)
    }

    fn r#type(&self, r#fn: u8, r#struct: &str) -> u8 {
        r#fn + r#struct.len() as u8
    }

    fn units(
        &self,
        (): (),
        _: Option<()>,
        c: Result<(), ()>,
        (_,): (u8,),
    ) -> Result<(), Option<()>> {
        c.map_err(Some)
    }
}

macro_rules! by_a_macro {
    ($name:ident, $text:ty, $right:ty) => {
        #[handfast::service]
        trait $name {
            fn length(&self, text: $text, right: Option<$right>) -> usize;
        }
    };
}

by_a_macro!(Made, &str, handfast::OwnRight);

impl Made for Mine {
    fn length(&self, text: &str, _right: Option<handfast::OwnRight>) -> usize {
        text.len()
    }
}

#[test]
#[allow(deprecated, reason = "it is there")]
fn odd_signatures_work_as_all_others() {
    let (odd, made) = [(); 2].map(|()| handfast::anonymous().unwrap()).into();
    let rights = [&odd, &made].map(|port| port.mint(0).connect().unwrap());
    let [to_odd, to_made] = rights;
    std::thread::spawn(move || OddServer::serve(&odd, &Mine));
    std::thread::spawn(move || MadeServer::serve(&made, &Mine));
    let client = OddClient::new(to_odd);
    assert_eq!(client.named(S(3), &S(3)).unwrap(), Some(S(3)));
    assert_eq!(client.r#type(2, "three").unwrap(), 7);
    assert_eq!(OddServer::SERVICE.methods()[1].name(), "type");
    assert_eq!(client.oldName(1).unwrap(), 2);
    assert_eq!(
        client.units((), None, Err(()), (1,)).unwrap(),
        Err(Some(()))
    );
    assert_eq!(MadeClient::new(to_made).length("four", None).unwrap(), 4);
}
