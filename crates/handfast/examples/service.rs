//! Typed objects behind one port: a bank opens accounts and gives out a right to each, an account
//! is used through its right and nothing else.
//!
//! Two threads of one process play server and client; in two processes nothing changes.

use handfast::service::CallError;
use handfast::{Notice, OwnRight, ReceiveRight};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};

#[derive(Debug, Serialize, Deserialize)]
struct Overdrawn {
    missing: i64,
}

#[handfast::service]
trait Bank {
    /// Opens an account and returns the right to it.
    fn open(&self, owner: String) -> OwnRight;
}

#[handfast::service]
trait Account {
    fn balance(&self) -> i64;
    fn deposit(&self, cents: u32) -> i64;
    fn withdraw(&self, cents: u32, note: &str) -> Result<i64, Overdrawn>;
}

struct MyBank<'a> {
    port: &'a ReceiveRight,
    accounts: RefCell<Vec<MyAccount>>,
}

struct MyAccount {
    owner: String,
    cents: Cell<i64>,
}

impl Bank for MyBank<'_> {
    fn open(&self, owner: String) -> OwnRight {
        let mut accounts = self.accounts.borrow_mut();
        let cents = Cell::new(0);
        accounts.push(MyAccount { owner, cents });
        // The badge says which account a request is for. Zero is for those who connect by name.
        self.port.mint(accounts.len() as u64)
    }
}

impl Account for MyAccount {
    fn balance(&self) -> i64 {
        self.cents.get()
    }

    fn deposit(&self, cents: u32) -> i64 {
        self.cents.set(self.balance() + i64::from(cents));
        self.balance()
    }

    fn withdraw(&self, cents: u32, note: &str) -> Result<i64, Overdrawn> {
        let left = self.balance() - i64::from(cents);
        if left < 0 {
            return Err(Overdrawn { missing: -left });
        }
        println!("{} pays for {note}", self.owner);
        self.cents.set(left);
        Ok(left)
    }
}

fn serve(port: &ReceiveRight) -> Result<(), Box<dyn std::error::Error>> {
    let accounts = RefCell::default();
    let bank = MyBank { port, accounts };
    loop {
        let request = port.receive()?;
        if request.notice() == Some(Notice::NoSenders) {
            return Ok(());
        }
        match request.badge() {
            0 => BankServer::dispatch(request, &bank)?,
            number => {
                let account = &bank.accounts.borrow()[number as usize - 1];
                AccountServer::dispatch(request, account)?;
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = format!("service-{}", std::process::id());
    let port = handfast::bind(&name)?;
    port.notify_no_senders();
    let server = std::thread::spawn(move || serve(&port).map_err(|error| error.to_string()));

    let bank = BankClient::new(handfast::connect(&name)?);
    let account = AccountClient::new(bank.open("Ada".to_owned())?);
    println!("deposited: {}", account.deposit(1000)?);
    for (cents, note) in [(700, "a book"), (700, "another book")] {
        match account.withdraw(cents, note)? {
            Ok(left) => println!("left: {left}"),
            Err(Overdrawn { missing }) => println!("not without {missing} more"),
        }
    }
    // A bank is no account, and says so.
    let mistaken = AccountClient::new(bank.right().clone());
    if let Err(error @ CallError::Refused { .. }) = mistaken.balance() {
        println!("{error}");
    }
    drop((bank, account, mistaken));
    server.join().map_err(|_| "the server panicked")??;
    Ok(())
}
