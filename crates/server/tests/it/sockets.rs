//! Who may listen and who may ask; what a connection may cost; how a server ends.
//! Section 4: loopback and keys, body limit.

use std::time::{Duration, Instant};

use twopass_provider::Provider;
use twopass_server::{ErrorKind, Limits, Server, ServerOptions};

use crate::client::{Connection, get, send};
use crate::harness::{Running, native_provider, options, temp_file};

/// Nobody is there: requests of this file do not reach a provider.
fn providers() -> Vec<Provider> {
    vec![native_provider(
        "far",
        std::net::SocketAddr::from(([127, 0, 0, 1], 1)),
    )]
}

#[tokio::test]
async fn s4_open_hosts_need_keys() {
    for host in ["0.0.0.0", "::", "[::]", "::ffff:0.0.0.0"] {
        let error = Server::bind(
            ServerOptions {
                host: host.to_owned(),
                ..options()
            },
            providers(),
        )
        .await
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{host}");
        let message = error.to_string();
        assert!(
            message.contains(host) && message.contains("keys_file"),
            "{message}"
        );
    }
    for host in ["127.0.0.1", "127.0.0.2", "localhost"] {
        let server = Server::bind(
            ServerOptions {
                host: host.to_owned(),
                ..options()
            },
            providers(),
        )
        .await
        .unwrap();
        assert!(server.local_addr().ip().is_loopback(), "{host}");
    }
    let keys_file = Some(temp_file("open-host-keys", "k\n"));
    let with_keys = ServerOptions {
        host: "0.0.0.0".to_owned(),
        keys_file,
        ..options()
    };
    assert!(
        Server::bind(with_keys, providers())
            .await
            .unwrap()
            .local_addr()
            .ip()
            .is_unspecified()
    );
}

#[tokio::test]
async fn s4_faulty_options_are_named() {
    let missing = ServerOptions {
        keys_file: Some("/nowhere/keys".into()),
        ..options()
    };
    let error = Server::bind(missing, providers()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read keys_file `/nowhere/keys`: No such file or directory (os error 2)"
    );

    let path = temp_file("no-keys", "# nothing\n\n");
    let error = Server::bind(
        ServerOptions {
            keys_file: Some(path.clone()),
            ..options()
        },
        providers(),
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        format!("keys_file `{}` holds no key", path.display())
    );

    let running = Running::start(options(), providers()).await;
    let port = running.addr.port();
    let error = Server::bind(ServerOptions { port, ..options() }, providers())
        .await
        .unwrap_err();
    let message = error.to_string();
    let expect = format!("cannot listen on `127.0.0.1` port {port}: Address already in use");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(message.starts_with(&expect), "{message}");

    let error = Server::bind(
        ServerOptions {
            host: "no such host".to_owned(),
            ..options()
        },
        providers(),
    )
    .await
    .unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("cannot resolve host `no such host`: "),
        "{message}"
    );
}

#[tokio::test]
async fn s4_keys_guard_all_but_health() {
    let keys_file = Some(temp_file("keys", "key-one\nkey-two\n"));
    let running = Running::start(
        ServerOptions {
            keys_file,
            ..options()
        },
        providers(),
    )
    .await;
    for (header, expect) in [
        ("x-none: 1", "401 unauthorized -"),
        ("authorization: Bearer key-thre", "401 unauthorized -"),
        ("authorization: Basic a2V5LW9uZQ==", "401 unauthorized -"),
        ("authorization: Bearer key-two", "404 not_found -"),
        ("x-api-key: key-one", "404 not_found -"),
    ] {
        let raw = format!("GET /nothing HTTP/1.1\r\nhost: twopass.example\r\n{header}\r\n\r\n");
        let reply = send(running.addr, raw.as_bytes()).await;
        assert_eq!(reply.error(), expect, "{header}");
        assert!(!reply.text().contains("key-t"), "{}", reply.text());
        assert_eq!(
            reply.header("www-authenticate").is_some(),
            reply.status == 401
        );
    }
}

#[tokio::test]
async fn s4_without_keys_foreign_host_names_are_refused() {
    let running = Running::start(options(), providers()).await;
    for (host, expect) in [
        ("localhost:1", "404 not_found -"),
        ("127.0.0.1", "404 not_found -"),
        ("rebound.example", "403 forbidden -"),
    ] {
        let raw = format!("GET /nothing HTTP/1.1\r\nhost: {host}\r\n\r\n");
        assert_eq!(
            send(running.addr, raw.as_bytes()).await.error(),
            expect,
            "{host}"
        );
    }
}

#[tokio::test]
async fn heads_that_do_not_arrive_are_given_up() {
    let limits = Limits {
        head_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let running = Running::start(
        ServerOptions {
            limits,
            ..options()
        },
        providers(),
    )
    .await;
    let soon = Duration::from_secs(3);

    let mut silent = Connection::open(running.addr).await;
    let mut dripping = Connection::open(running.addr).await;
    let mut kept = Connection::open(running.addr).await;
    let start = Instant::now();
    kept.write(b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert_eq!(kept.reply().await.status, 404);
    let drip = async {
        for byte in b"GET /nothing HTTP/1.1\r\nx-slow: 123456789012345678901234567890" {
            dripping.write_while_open(&[*byte]).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        dripping.is_closed_within(soon).await
    };
    let (silent, dripping, kept) = tokio::join!(
        silent.is_closed_within(soon),
        drip,
        kept.is_closed_within(soon)
    );
    assert!(silent, "a silent connection stays open");
    assert!(dripping, "a dripping head stays open");
    assert!(kept, "an idle kept connection stays open");
    assert!(start.elapsed() < soon);
    assert_eq!(get(running.addr, "/nothing").await.status, 404);
}

#[tokio::test]
async fn broken_heads_are_refused_and_the_server_lives() {
    let running = Running::start(options(), providers()).await;
    let long_line = format!(
        "GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "a".repeat(200_000)
    );
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(500));
    for (raw, allowed) in [
        ("nonsense\r\n\r\n", &[400][..]),
        ("GET / HTTP/9.9\r\n\r\n", &[400]),
        ("GET / HTTP/1.1\r\nbroken header\r\n\r\n", &[400]),
        (
            "POST /generate HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
            &[400],
        ),
        (
            "POST /generate HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            &[400],
        ),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", &[400]),
        (&long_line, &[414, 431]),
        (&many, &[431]),
    ] {
        let shown: String = raw.chars().take(60).collect();
        let reply = send(running.addr, raw.as_bytes()).await;
        assert!(
            allowed.contains(&reply.status),
            "{shown:?}: {}",
            reply.status
        );
    }
    assert_eq!(
        get(running.addr, "/nothing").await.error(),
        "404 not_found -"
    );
}

/// Many that say nothing do not keep out one that does.
#[tokio::test]
async fn a_silent_connection_makes_room() {
    let limits = Limits {
        connections: 4,
        ..Limits::default()
    };
    let options = ServerOptions {
        limits,
        ..options()
    };
    let running = Running::start(options, providers()).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        let mut connection = Connection::open(running.addr).await;
        connection.write(b"GET /nothing HTTP/1.1\r\nhost: ").await;
        silent.push(connection);
    }
    let asked = tokio::time::timeout(Duration::from_secs(5), get(running.addr, "/nothing"));
    assert_eq!(asked.await.expect("there is room").status, 404);
    assert!(silent[0].is_closed_within(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn an_idle_server_ends_at_once() {
    let running = Running::start(options(), providers()).await;
    let mut fresh = Connection::open(running.addr).await;
    let mut kept = Connection::open(running.addr).await;
    kept.write(b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert_eq!(kept.reply().await.status, 404);
    running.shutdown.stop();
    let soon = Duration::from_secs(2);
    tokio::time::timeout(soon, running.task)
        .await
        .expect("it ends")
        .unwrap();
    assert!(kept.is_closed_within(soon).await);
    assert!(fresh.is_closed_within(soon).await);
    assert!(tokio::net::TcpStream::connect(running.addr).await.is_err());
}
