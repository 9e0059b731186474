use twopass_core::chat::{Message, Role};
use twopass_tools::working_memory::WorkingMemory;

/// Where the working memory stands in a system prompt.
const PLACEHOLDER: &str = "{working_memory}";

/// The system prompt, with the working memory as it is when the model is asked.
#[derive(Clone)]
pub struct Instructions {
    template: String,
    memory: Option<WorkingMemory>,
}

impl Instructions {
    /// A fixed text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            template: text.into(),
            memory: None,
        }
    }

    /// A text in which `{working_memory}` stands for this memory; without the placeholder the
    /// memory comes last.
    #[must_use]
    pub fn with_memory(template: impl Into<String>, memory: WorkingMemory) -> Self {
        let mut template = template.into();
        if !template.contains(PLACEHOLDER) {
            template.push_str("\n\n# Working memory\n\n");
            template.push_str(PLACEHOLDER);
        }
        Self {
            template,
            memory: Some(memory),
        }
    }

    /// The same with this memory, if there is none yet.
    #[must_use]
    pub fn or_memory(self, memory: WorkingMemory) -> Self {
        match self.memory {
            Some(_) => self,
            None => Self::with_memory(self.template, memory),
        }
    }

    /// The memory, if there is one.
    #[must_use]
    pub fn memory(&self) -> Option<&WorkingMemory> {
        self.memory.as_ref()
    }

    /// The system message as of now.
    #[must_use]
    pub fn to_message(&self) -> Message {
        let text = match &self.memory {
            Some(memory) => self.template.replace(PLACEHOLDER, memory.text().trim_end()),
            None => self.template.clone(),
        };
        Message::text(Role::System, text)
    }
}

impl std::fmt::Debug for Instructions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instructions")
            .field("template", &self.template)
            .finish_non_exhaustive()
    }
}
