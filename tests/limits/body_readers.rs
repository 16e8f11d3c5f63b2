//! Odd bodies before upstreams in Python, JavaScript and Go, as an attacker sends them: no spelling of an
//! account that is used up is read by an upstream.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::bodies::post;
use crate::support::gateway::Gateway;

/// Reads a body in each way that is common, and answers with the accounts that were found.
const PYTHON: &str = r#"
import gzip, json, sys, urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
def account(document):
    # In any case, the last counts.
    found = [value for name, value in document.items() if name.casefold() == "user"] if isinstance(document, dict) else []
    return [document.get("user")] + found[-1:] if isinstance(document, dict) else []
def attempt(read):
    try:
        return read()
    except Exception:
        return []
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = attempt(lambda: gzip.decompress(body)) or body
        first = lambda text: json.JSONDecoder(strict=False).raw_decode(text.lstrip())[0]
        charset = self.headers.get_content_charset("utf-8")
        found = attempt(lambda: account(json.loads(body)))
        found += attempt(lambda: account(first(body.decode(charset))))
        found += attempt(lambda: account(first(body.decode("utf-8-sig", "replace"))))
        found += attempt(lambda: account(dict(json.loads(body, object_pairs_hook=lambda pairs: dict(reversed(pairs))))))
        for separator in "&;":
            form = attempt(lambda: urllib.parse.parse_qs(body.decode(), separator=separator)) or {}
            if "urlencoded" in self.headers.get("content-type", ""):
                for name, values in form.items():
                    if name.strip().split("[")[0].casefold() == "user":
                        found += values
        answer = json.dumps([str(one) for one in found]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *arguments):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.daemon_threads = True
server.serve_forever()
"#;

/// Reads bodies as Express's body-parser does, which decompresses and decodes them.
const NODE: &str = r#"
const http = require("http"), zlib = require("zlib"), querystring = require("querystring");
const attempt = (read) => { try { return read(); } catch { return []; } };
const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part)).on("end", () => {
    let body = Buffer.concat(parts);
    if (request.headers["content-encoding"]) body = attempt(() => zlib.unzipSync(body));
    const type = request.headers["content-type"] || "";
    const charset = (/charset="?([^\s;"]+)/i.exec(type) || [])[1] || "utf-8";
    const texts = [attempt(() => new TextDecoder(charset).decode(body)), body.toString()];
    const found = [];
    for (const text of texts) {
      found.push(...attempt(() => [JSON.parse(text).user]));
      if (/urlencoded/i.test(type)) found.push(...attempt(() => [querystring.parse(text).user].flat()));
    }
    const answer = JSON.stringify(found.map(String));
    response.writeHead(200, { "content-length": Buffer.byteLength(answer) }).end(answer);
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"#;

/// Reads bodies as Go's handlers do: JSON whole and as the first of several documents, into a field and
/// into a map; forms of both kinds.
const GO: &str = r#"
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

type account struct {
	User any `json:"user"`
}

func read(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if plain, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
		body, _ = io.ReadAll(plain)
	}
	found := []string{}
	add := func(value any) { found = append(found, fmt.Sprint(value)) }
	for _, first := range []bool{false, true} {
		decode := func(into any) error {
			if first {
				return json.NewDecoder(bytes.NewReader(body)).Decode(into)
			}
			return json.Unmarshal(body, into)
		}
		var named account
		decode(&named)
		add(named.User)
		var all map[string]any
		decode(&all)
		for name, value := range all {
			if strings.EqualFold(name, "user") {
				add(value)
			}
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ParseMultipartForm(1 << 20)
	for name, values := range r.Form {
		if strings.EqualFold(strings.Split(strings.TrimSpace(name), "[")[0], "user") {
			found = append(found, values...)
		}
	}
	json.NewEncoder(w).Encode(found)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	http.Serve(listener, http.HandlerFunc(read))
}
"#;

/// Compiles a program of Go.
fn compiled(source: &str) -> Command {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
    fs::create_dir_all(&directory).expect("a directory");
    let (file, program) = (directory.join("reader.go"), directory.join("reader"));
    fs::write(&file, source).expect("a file");
    let mut build = Command::new("go");
    build.arg("build").arg("-o").arg(&program).arg(&file);
    build.env("GOCACHE", directory.join("cache"));
    let status = build.status().expect("go is installed");
    assert!(status.success(), "it compiles");
    Command::new(program)
}

/// An upstream that is a script.
struct Reader {
    process: Child,
    url: String,
}

impl Reader {
    fn start(mut command: Command) -> Self {
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut process = spawned.unwrap_or_else(|_| panic!("{command:?} is installed"));
        let mut port = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut port).expect("a line");
        let url = format!("http://127.0.0.1:{}", port.trim());
        Self { process, url }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Header fields and bodies in which some reader may find the account `ann`.
fn odd_bodies() -> Vec<(String, Vec<u8>)> {
    let plain = r#"{"user":"ann"}"#;
    let texts = [
        plain,
        " {\"user\" :\t\"ann\"}\r\n",
        r#"{"\u0075ser":"\u0061nn"}"#,
        r#"{"user":"bob","user":"ann"}"#,
        r#"{"user":"ann","user":"bob"}"#,
        r#"{"user":"bob","\u0075ser":"ann"}"#,
        r#"{"User":"ann"}"#,
        r#"{"user":"bob","USER":"ann"}"#,
        r#"{"uſer":"ann"}"#,
        r#"{"x":NaN,"user":"ann"}"#,
        r#"{"x":-Infinity,"user":"ann"}"#,
        "{\"x\":\"\n\",\"user\":\"ann\"}",
        "{\"x\":\"\u{0}\",\"user\":\"ann\"}",
        r#"{"x":"\ud800","user":"ann"}"#,
        r#"{"\ud800":1,"user":"ann"}"#,
        r#"{"user":"ann"} {"user":"bob"}"#,
        r#"{"user":"ann"}garbage"#,
        r#"{"user":"ann",}"#,
        r#"{"x":01,"user":"ann"}"#,
        "\u{feff}{\"user\":\"ann\"}",
        "\u{feff}\u{feff}{\"user\":\"ann\"}",
        "\u{a0}{\"user\":\"ann\"}",
        "\u{c}{\"user\":\"ann\"}",
        r#"{"user":{"user":"ann"}}"#,
    ];
    let types = [
        "",
        "Content-Type: application/json\r\n",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: multipart/form-data; boundary=x\r\n",
        "Content-Type: application/json; charset=latin1\r\n",
    ];
    let mut all = Vec::new();
    for fields in types {
        all.extend(texts.map(|text| (fields.to_owned(), text.as_bytes().to_vec())));
    }
    let deep = format!(
        "{{\"x\":{}{},\"user\":\"ann\"}}",
        "[".repeat(400),
        "]".repeat(400)
    );
    all.push((String::new(), deep.into_bytes()));
    all.push((String::new(), b"{\"x\":\"\xff\",\"user\":\"ann\"}".to_vec()));
    all.push((
        String::new(),
        b"{\"x\":\"\xed\xa0\x80\",\"user\":\"ann\"}".to_vec(),
    ));
    let wide = |order: fn(u16) -> [u8; 2], mark: &str| {
        let text = format!("{mark}{plain}");
        text.encode_utf16().flat_map(order).collect::<Vec<_>>()
    };
    for (charset, order) in [
        ("utf-16le", u16::to_le_bytes as fn(u16) -> [u8; 2]),
        ("utf-16be", u16::to_be_bytes),
    ] {
        for mark in ["", "\u{feff}"] {
            for fields in [
                String::new(),
                format!("Content-Type: application/json; charset={charset}\r\n"),
            ] {
                all.push((fields, wide(order, mark)));
            }
        }
    }
    let utf32: Vec<u8> = plain
        .chars()
        .flat_map(|one| (one as u32).to_be_bytes())
        .collect();
    all.push((String::new(), utf32));
    all.push((
        "Content-Encoding: gzip\r\n".to_owned(),
        gzipped(plain.as_bytes()),
    ));
    for form in [
        "user=ann",
        "%75ser=%61nn",
        "user=bob&user=ann",
        "user=ann&user=bob",
        "x=1;user=ann",
        "user[]=ann",
        "User=ann",
        "+user=ann",
        "user=bob;user=ann",
        "&&user=ann&",
    ] {
        all.push((types[3].to_owned(), form.as_bytes().to_vec()));
        all.push((
            "Content-Type: application/x-www-form-urlencoded; charset=UTF-8\r\n".to_owned(),
            form.as_bytes().to_vec(),
        ));
    }
    all
}

/// A gzip file of one stored block (RFC 1952, RFC 1951 section 3.2.4).
fn gzipped(data: &[u8]) -> Vec<u8> {
    let mut sum = u32::MAX;
    for byte in data {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ 0xedb8_8320
            } else {
                sum >> 1
            };
        }
    }
    let length = data.len() as u16;
    let mut all = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    all.extend(length.to_le_bytes());
    all.extend((!length).to_le_bytes());
    all.extend(data);
    all.extend((!sum).to_le_bytes());
    all.extend(u32::from(length).to_le_bytes());
    all
}

#[test]
fn no_spelling_of_an_account_that_is_used_up_reaches_a_reader() {
    let script = |program: &str, option: &str, text: &str| {
        let mut command = Command::new(program);
        command.args([option, text]);
        command
    };
    let readers = [
        script("python3", "-c", PYTHON),
        script("node", "-e", NODE),
        compiled(GO),
    ]
    .map(Reader::start);
    for reader in &readers {
        let gateway = Gateway::start(&format!(
            "routes:
  - upstream: \"{}\"
    request: {{ read_body: 64KiB }}
    limits:
      - {{ name: json, key: body:/user, quota: 1/1h, on_missing_key: skip }}
      - {{ name: form, key: form:user, quota: 1/1h, on_missing_key: skip }}
",
            reader.url
        ));
        let address = gateway.address();
        let form = "Content-Type: application/x-www-form-urlencoded\r\n";
        let first = post(address, "", r#"{"user":"ann"}"#);
        assert!(first.text().contains("\"ann\""), "{}", first.text());
        let first = post(address, form, "user=ann");
        assert!(first.text().contains("\"ann\""), "{}", first.text());
        let (mut refused, mut passed) = (0, 0);
        for (fields, body) in odd_bodies() {
            let response = post(address, &fields, &body);
            let shown = String::from_utf8_lossy(&body);
            match response.status {
                200 => {
                    let found = response.text();
                    assert!(!found.contains("\"ann\""), "{fields}{shown}: {found}");
                    passed += 1;
                }
                400 | 429 => refused += 1,
                other => panic!("{other}: {fields}{shown}"),
            }
        }
        // Bodies without the account pass.
        assert!(
            refused > 100 && passed < 60,
            "{refused} refused, {passed} passed"
        );
        let other = post(address, "", r#"{"user":"bob","note":"user, ann"}"#);
        assert_eq!(other.status, 200);
    }
}
