use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use twopass_replay::{Connection, Exchange, Listener};

use super::clients::Random;

/// One answer in so many is broken, in one of so many ways.
const BROKEN: u64 = 10;
const N_WAYS: u64 = 5;
/// Pieces of a streamed answer, and the time between two.
const N_PIECES: usize = 20;
const PER_PIECE: Duration = Duration::from_millis(3);
/// Longer than the server waits.
const STALL: Duration = Duration::from_secs(30);

/// Starts a service of chat and vectors that now and then fails; gives its address.
pub(super) async fn start() -> String {
    let listener = Listener::bind().await.unwrap();
    let url = format!("http://{}/v1", listener.address().unwrap());
    tokio::spawn(async move {
        let mut random = Random(0x5eed);
        loop {
            // A server that went away before it asked.
            let Ok(exchange) = listener.exchange().await else {
                continue;
            };
            let is_broken = random.below(BROKEN) == 0;
            let way = is_broken.then(|| random.below(N_WAYS));
            tokio::spawn(answer(exchange, way));
        }
    });
    url
}

async fn answer(exchange: Exchange, way: Option<u64>) {
    let Exchange {
        request,
        mut connection,
    } = exchange;
    let asked = request.json();
    // Whoever asked may have left.
    let _ = match way {
        None if request.path.ends_with("/embeddings") => vectors(&mut connection, &asked).await,
        None if asked["stream"] == true => streamed(&mut connection, &asked, N_PIECES).await,
        None => whole(&mut connection, "200 OK", &chat(&asked).to_string()).await,
        // Cut: in a stream after some pieces, in a whole answer before its length.
        Some(0) if asked["stream"] == true => streamed(&mut connection, &asked, 7).await,
        Some(0) => connection.write(&(head("200 OK", 900) + "{\"choi")).await,
        Some(1) => whole(&mut connection, "200 OK", "<html>no JSON</html>").await,
        Some(2) => whole(&mut connection, "500 Internal Server Error", "{}").await,
        Some(3) => whole(&mut connection, "429 Too Many Requests", "{}").await,
        Some(_) => stall(connection).await.map(drop),
    };
}

async fn stall(connection: Connection) -> std::io::Result<()> {
    let _ = timeout(STALL, connection.gone()).await;
    Ok(())
}

fn head(status: &str, n_bytes: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {n_bytes}\r\n\r\n"
    )
}

async fn whole(connection: &mut Connection, status: &str, body: &str) -> std::io::Result<()> {
    connection.write(&(head(status, body.len()) + body)).await
}

async fn vectors(connection: &mut Connection, asked: &Value) -> std::io::Result<()> {
    let n_inputs = asked["input"].as_array().map_or(1, Vec::len);
    let data = (0..n_inputs)
        .map(|idx| json!({"object": "embedding", "index": idx, "embedding": [0.6, 0.8]}));
    let body = json!({
        "object": "list", "model": "vectors", "data": data.collect::<Vec<_>>(),
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    });
    whole(connection, "200 OK", &body.to_string()).await
}

/// A thought and an answer to what was asked last.
fn text(asked: &Value) -> String {
    let messages = asked["messages"].as_array();
    let last = messages.and_then(|messages| messages.last());
    let question = last.map_or(&Value::Null, |last| &last["content"]);
    format!("<think>\nWhat of {question}?\n</think>\n\nThe answer to {question} is 42.")
}

fn chat(asked: &Value) -> Value {
    json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": text(asked)},
        }],
        "usage": {"prompt_tokens": 12, "completion_tokens": 20, "total_tokens": 32},
    })
}

/// A stream of so many of its pieces; with less than all it breaks off.
async fn streamed(connection: &mut Connection, asked: &Value, n: usize) -> std::io::Result<()> {
    connection.begin_stream().await?;
    let text: Vec<char> = text(asked).chars().collect();
    let pieces = text.chunks(text.len().div_ceil(N_PIECES));
    for piece in pieces.take(n) {
        let piece: String = piece.iter().collect();
        let chunk = json!({"choices": [{"index": 0, "delta": {"content": piece}}]});
        connection.write(&format!("data: {chunk}\n\n")).await?;
        sleep(PER_PIECE).await;
    }
    if n < N_PIECES {
        return Ok(());
    }
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 20}});
    connection
        .write(&format!("data: {end}\n\ndata: {usage}\n\ndata: [DONE]\n\n"))
        .await
}
