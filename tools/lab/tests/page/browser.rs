//! A headless Chromium, spoken to by its DevTools protocol over two pipes: no port, no library.

use serde_json::{Value, json};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// A browser with one page; ends with this value.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    next: u64,
    /// Events that the browser sent without having been asked, in order.
    pub(crate) events: Vec<Value>,
    folder: PathBuf,
}

/// For every answer, on a machine that has a lot else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser to use: `HANDFAST_CHROMIUM`, or the first of the usual names that is installed.
pub(crate) fn installed() -> Option<PathBuf> {
    if let Some(named) = env::var_os("HANDFAST_CHROMIUM") {
        return Some(named.into());
    }
    let folders = env::var_os("PATH")?;
    let names = [
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    ];
    env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.is_file())
}

impl Browser {
    pub(crate) fn start(program: &Path, folder: &Path) -> Self {
        let options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-sync",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
        ];
        // The protocol is spoken on descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 >/dev/null 2>&1 </dev/null",
            ])
            .arg(program)
            .args(options)
            .arg(format!("--user-data-dir={}", folder.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (sender, from) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while out.read_until(0, &mut message).is_ok_and(|len| len > 0) {
                message.pop();
                let value = serde_json::from_slice(&message).unwrap();
                message.clear();
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            to,
            from,
            session: None,
            next: 0,
            events: Vec::new(),
            folder: folder.to_owned(),
        };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.ask("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Asks, and waits for the answer; what comes before it is kept in `events`.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut request = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.to.write_all(request.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        self.to.flush().unwrap();
        loop {
            let message = self.hear(method);
            if message["id"] == json!(self.next) {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn hear(&self, what: &str) -> Value {
        let message = self.from.recv_timeout(PATIENCE);
        message.unwrap_or_else(|_| panic!("{what}: no answer in {PATIENCE:?}"))
    }

    /// Goes to a page, until it has loaded.
    pub(crate) fn go(&mut self, path: &Path) {
        let url = format!("file://{}", path.display());
        let seen = self.events.len();
        self.ask("Page.navigate", json!({"url": url}));
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events[seen..].iter().any(is_loaded) {
            let event = self.hear("Page.loadEventFired");
            self.events.push(event);
        }
        self.settle();
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", params);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Waits for the page to lay itself out and draw.
    pub(crate) fn settle(&mut self) {
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
    }

    pub(crate) fn size(&mut self, wide: u32, high: u32) {
        let params =
            json!({"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", params);
        self.settle();
    }

    pub(crate) fn prefer(&mut self, scheme: &str) {
        let feature = json!([
            {"name": "prefers-color-scheme", "value": scheme},
            // An element that still glides is not where a click goes.
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": feature}));
        self.settle();
    }

    /// As on paper, or on the screen again.
    pub(crate) fn print(&mut self, prints: bool) {
        let media = if prints { "print" } else { "" };
        self.ask("Emulation.setEmulatedMedia", json!({"media": media}));
        self.settle();
    }

    /// Moves the pointer to a part of an element: fractions of its width and height.
    pub(crate) fn point(&mut self, selector: &str, right: f64, down: f64) -> (f64, f64) {
        let find = format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const b = e.getBoundingClientRect(); return [b.left + b.width * {right}, b.top + b.height * {down}]; }})()"
        );
        let at = self.value(&find);
        let (x, y) = (at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
        self.ask(
            "Input.dispatchMouseEvent",
            json!({"type": "mouseMoved", "x": x, "y": y}),
        );
        (x, y)
    }

    pub(crate) fn click(&mut self, selector: &str) {
        let (x, y) = self.point(selector, 0.5, 0.5);
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", params);
        }
        self.settle();
    }

    /// Presses a key: its name, and its number where the browser does something by itself for it.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            " " => (32, " "),
            "Escape" => (27, ""),
            "End" => (35, ""),
            "Home" => (36, ""),
            "ArrowLeft" => (37, ""),
            "ArrowRight" => (39, ""),
            other => panic!("no number of {other}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                params["text"] = json!(text);
            }
            self.ask("Input.dispatchKeyEvent", params);
        }
    }

    /// A picture of the whole page, as PNG in base64.
    pub(crate) fn picture(&mut self, high: f64) -> String {
        let wide = self.value("innerWidth");
        let clip = json!({"x": 0, "y": 0, "width": wide, "height": high, "scale": 1});
        let params = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = self.ask("Page.captureScreenshot", params);
        picture["data"].as_str().unwrap().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
