//! The terminal app: a conversation with an agent, on a screen or line by line.
//!
//! [`update`] changes an [`App`] by one happening and says what is to be done; [`draw`] puts
//! it on a screen of any size. Neither does any IO. [`run_screen`] and [`run_lines`] are the
//! two drivers, over one [`Chat`]: the conversation with its turn under way, its session file
//! and its trace.
#![warn(missing_docs)]

mod app;
mod chat;
mod command;
mod harmless;
mod input;
mod lines;
mod markdown;
mod screen;
mod session;
mod theme;
mod transcript;
mod update;
mod view;
mod wrap;

pub use app::{About, App, Effect, Happening, ToolLine};
pub use chat::{Chat, ChatParts, Switch};
pub use command::{Command, ThinkingWish};
pub use harmless::for_reader;
pub use lines::run_lines;
pub use screen::run_screen;
pub use session::{Session, SessionError};
pub use theme::Theme;
pub use update::update;
pub use view::draw;
