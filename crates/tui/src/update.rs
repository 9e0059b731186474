//! The one place where the app changes.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use twopass_agent::{AgentEvent, EndReason, Outcome};
use twopass_core::chat::{Event, Reply, ToolCall};
use twopass_tools::Consent;

use crate::app::{CallCard, CallState, Item, Phase, Reasoning};
use crate::command::{COMMANDS, ThinkingWish};
use crate::input::Edit;
use crate::{App, Command, Effect, Happening};

/// A second interrupt within this time leaves the app.
const QUIT_WITHIN_MS: u64 = 1500;
/// How long no key was pressed before one answers a question.
const HANDS_REST_MS: u64 = 700;
const UNDER_WAY: &str = "a turn is under way; Esc ends it";
/// Lines that a page key moves.
const PAGE: usize = 10;
const KEYS: &str = "\
Enter sends, Alt-Enter or Ctrl-J begins a line, Up and Down go through the history
Ctrl-R folds the reasoning, Ctrl-T shows calls whole, PageUp and PageDown scroll
Ctrl-C or Esc ends a turn, Ctrl-C twice leaves";

/// Changes the app by one happening at this moment, in milliseconds; gives what is to be done,
/// in order.
pub fn update(app: &mut App, happening: Happening, now_ms: u64) -> Vec<Effect> {
    if let Phase::Working { now_ms: shown, .. } = &mut app.phase {
        *shown = now_ms;
    }
    if app
        .quit_asked_ms
        .is_some_and(|asked| now_ms > asked + QUIT_WITHIN_MS)
    {
        app.quit_asked_ms = None;
    }
    match happening {
        Happening::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        Happening::Key(key) => on_key(app, key, now_ms),
        Happening::Paste(text) => {
            app.busy_hands_ms = now_ms;
            if app.input.has_room(&text) {
                app.input.insert(&text);
            } else {
                app.note("that is too long to be pasted", true);
            }
            Vec::new()
        }
        Happening::Interrupt => interrupt(app, now_ms),
        Happening::Tick => Vec::new(),
        Happening::Terminated => vec![Effect::Quit],
        Happening::Agent(event) => on_agent(app, event, now_ms),
        Happening::Told { text, is_bad } => {
            app.note(text, is_bad);
            Vec::new()
        }
        Happening::ModelChanged(made) => {
            app.phase = Phase::Idle;
            match made {
                Ok(model) => {
                    app.note(format!("the model is {model} now"), false);
                    app.about.model = model;
                }
                Err(why) => app.note(why, true),
            }
            Vec::new()
        }
        Happening::BudgetChanged(budget) => {
            app.about.max_thinking_tokens = budget;
            Vec::new()
        }
        Happening::Restored(messages) => {
            app.restore(&messages);
            Vec::new()
        }
    }
}

fn on_key(app: &mut App, key: KeyEvent, now_ms: u64) -> Vec<Effect> {
    let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if ctrl => return interrupt(app, now_ms),
        KeyCode::Char('d') if ctrl && app.input.is_empty() => {
            if app.phase == Phase::Idle {
                return vec![Effect::Quit];
            }
            app.note(UNDER_WAY, true);
        }
        KeyCode::Char('r') if ctrl => app.is_unfolded = !app.is_unfolded,
        KeyCode::Char('t') if ctrl => app.shows_details = !app.shows_details,
        KeyCode::PageUp => app.scroll = app.scroll.saturating_add(PAGE),
        KeyCode::PageDown => app.scroll = app.scroll.saturating_sub(PAGE),
        KeyCode::Esc if app.phase != Phase::Idle => return cancel(app),
        KeyCode::Char('y' | 'A' | 'n') if !ctrl && is_answer(app, now_ms) => {
            return answer(app, key.code, now_ms);
        }
        _ => {
            app.busy_hands_ms = now_ms;
            if let Edit::Send(text) = app.input.key(key) {
                return submit(app, text, now_ms);
            }
        }
    }
    Vec::new()
}

/// Once ends the turn, twice leaves.
fn interrupt(app: &mut App, now_ms: u64) -> Vec<Effect> {
    if app.quit_asked_ms.take().is_some() {
        return vec![Effect::Quit];
    }
    app.quit_asked_ms = Some(now_ms);
    if app.phase == Phase::Idle {
        app.input.clear();
        return Vec::new();
    }
    cancel(app)
}

fn cancel(app: &mut App) -> Vec<Effect> {
    app.asking.clear();
    if let Phase::Working { is_ending, .. } = &mut app.phase {
        *is_ending = true;
    }
    vec![Effect::Cancel]
}

/// True if a key now answers a question: who is typing, or has just answered another one, did
/// not mean it.
fn is_answer(app: &App, now_ms: u64) -> bool {
    let rests = now_ms >= app.busy_hands_ms + HANDS_REST_MS;
    !app.asking.is_empty() && app.input.is_empty() && rests
}

/// A key while a call waits for consent.
fn answer(app: &mut App, key: KeyCode, now_ms: u64) -> Vec<Effect> {
    app.busy_hands_ms = now_ms;
    let consent = match key {
        KeyCode::Char('n') => Consent::Denied,
        _ => Consent::Given,
    };
    let Some(call) = app.asking.pop_front() else {
        return Vec::new();
    };
    let mut effects = Vec::new();
    if key == KeyCode::Char('A') {
        effects.push(Effect::Allow(call.name.clone()));
        app.note(
            format!("{} runs without a question from now on", call.name),
            false,
        );
    }
    if let Some(card) = app.card(&call.id) {
        card.state = CallState::Running;
    }
    let call_id = call.id;
    effects.push(Effect::Consent { call_id, consent });
    effects
}

/// A line was sent: a command, or a message.
fn submit(app: &mut App, text: String, now_ms: u64) -> Vec<Effect> {
    app.scroll = 0;
    match Command::parse(&text) {
        Some(Err(fault)) => {
            app.note(fault, true);
            Vec::new()
        }
        Some(Ok(command)) => run(app, command, now_ms),
        None if app.phase != Phase::Idle => {
            app.input.insert(&text);
            app.note(UNDER_WAY, true);
            Vec::new()
        }
        None => {
            app.items.push(Item::User(text.clone()));
            work(app, now_ms);
            vec![Effect::Send(text)]
        }
    }
}

fn work(app: &mut App, now_ms: u64) {
    app.phase = Phase::Working {
        since_ms: now_ms,
        now_ms,
        is_ending: false,
    };
}

fn run(app: &mut App, command: Command, now_ms: u64) -> Vec<Effect> {
    match command {
        Command::Help => {
            let commands = COMMANDS.map(|(form, does)| format!("{form:<32}{does}"));
            app.note(format!("{}\n{KEYS}", commands.join("\n")), false);
        }
        Command::Tools => {
            let table = app.about.tool_table();
            app.note(table, false);
        }
        Command::Thinking(ThinkingWish::Fold) => app.is_unfolded = !app.is_unfolded,
        Command::Model(None) => app.note(app.about.model.clone(), false),
        Command::Quit => return vec![Effect::Quit],
        Command::Clear | Command::Model(Some(_)) if app.phase != Phase::Idle => {
            app.note(UNDER_WAY, true);
        }
        Command::Model(Some(_)) => {
            work(app, now_ms);
            return vec![Effect::Run(command)];
        }
        other => return vec![Effect::Run(other)],
    }
    Vec::new()
}

fn on_agent(app: &mut App, event: AgentEvent, now_ms: u64) -> Vec<Effect> {
    match event {
        AgentEvent::StepStarted { .. } => app.turn_start = app.items.len(),
        AgentEvent::Delta(delta) => on_delta(app, delta),
        AgentEvent::StepFinished { reply, .. } => end_step(app, &reply),
        AgentEvent::ConsentNeeded { call } => {
            push_card(app, &call, CallState::Asking);
            if app.asking.is_empty() {
                app.busy_hands_ms = app.busy_hands_ms.max(now_ms);
            }
            app.asking.push_back(call);
        }
        AgentEvent::CallStarted { call } => push_card(app, &call, CallState::Running),
        AgentEvent::CallFinished { call, output } => {
            if app.card(&call.id).is_none() {
                push_card(app, &call, CallState::Running);
            }
            app.asking.retain(|asked| asked.id != call.id);
            if let Some(card) = app.card(&call.id) {
                card.state = CallState::Done(output);
            }
        }
        AgentEvent::Nudged(nudge) => app.note(format!("to the model: {}", nudge.text), false),
        AgentEvent::Compacted(done) => app.note(
            format!(
                "the history was made shorter: {} to {} tokens",
                done.tokens_before, done.tokens_after
            ),
            false,
        ),
        AgentEvent::ContextFilling { percent } => app.context_percent = Some(percent),
        AgentEvent::MemoryUpdated { error, .. } => match error {
            Some(error) => app.note(format!("the memory was not updated: {error}"), true),
            None => app.note("the memory was updated", false),
        },
        AgentEvent::Ended(outcome) => end(app, &outcome),
        _ => {}
    }
    Vec::new()
}

fn on_delta(app: &mut App, delta: Event) {
    match delta {
        Event::ReasoningDelta(text) => {
            let reasoning = open_reasoning(app);
            reasoning.text.push_str(&text);
            // Services send about a token at a time.
            reasoning.n_tokens += 1;
        }
        Event::ReasoningBlockEnd => open_reasoning(app).text.push_str("\n\n"),
        Event::TextDelta(text) => {
            if let Some(Item::Answer(answer)) = app.last_written() {
                return answer.push_str(&text);
            }
            close_reasoning(app, None);
            app.items.push(Item::Answer(text));
        }
        Event::Reclassified => {
            let Some(Item::Answer(answer)) = app.last_written() else {
                return;
            };
            let text = std::mem::take(answer);
            let turn_start = app.turn_start;
            let emptied = |item: &Item| matches!(item, Item::Answer(text) if text.is_empty());
            if let Some(at) = app.items.iter().rposition(emptied)
                && at >= turn_start
            {
                app.items.remove(at);
            }
            open_reasoning(app).text.push_str(&text);
        }
        _ => {}
    }
}

/// The trace that is being written; a new one if there is none.
fn open_reasoning(app: &mut App) -> &mut Reasoning {
    let is_open = matches!(app.last_written(), Some(Item::Reasoning(last)) if !last.is_done);
    if !is_open {
        app.items.push(Item::Reasoning(Reasoning::default()));
    }
    match app.last_written() {
        Some(Item::Reasoning(reasoning)) => reasoning,
        _ => unreachable!("it was pushed just now"),
    }
}

/// Ends the traces of the turn; `n_tokens` is what the model counted.
fn close_reasoning(app: &mut App, n_tokens: Option<u64>) {
    let turn = app.items.get_mut(app.turn_start..).unwrap_or_default();
    let traces = turn.iter_mut().filter_map(|item| match item {
        Item::Reasoning(reasoning) => Some(reasoning),
        _ => None,
    });
    for reasoning in traces {
        reasoning.is_done = true;
        if let Some(n_tokens) = n_tokens {
            reasoning.n_tokens = n_tokens;
        }
    }
}

fn end_step(app: &mut App, reply: &Reply) {
    let usage = &reply.usage;
    let counted = Some(usage.thinking_tokens).filter(|counted| *counted > 0);
    close_reasoning(app, counted);
    let used = [
        usage.prompt_tokens,
        usage.thinking_tokens,
        usage.response_tokens,
    ];
    for (sum, used) in app.n_tokens.iter_mut().zip(used) {
        *sum += used;
    }
    for note in &reply.diagnostics {
        app.note(note.message.clone(), false);
    }
}

fn push_card(app: &mut App, call: &ToolCall, state: CallState) {
    if app
        .card(&call.id)
        .is_some_and(|card| !matches!(card.state, CallState::Done(_)))
    {
        return;
    }
    app.items.push(Item::Call(CallCard {
        call: call.clone(),
        state,
    }));
}

fn end(app: &mut App, outcome: &Outcome) {
    app.phase = Phase::Idle;
    app.asking.clear();
    close_reasoning(app, None);
    match (outcome.end, &outcome.error) {
        (EndReason::Answer, _) => {}
        (EndReason::Cancelled, _) => app.note("you ended the turn", false),
        (_, Some(error)) => app.note(error.to_string(), true),
        (reason, None) => app.note(format!("no answer: {reason}"), true),
    }
}
