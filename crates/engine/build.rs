//! Compiles the hook that turns ggml's abort into an error while a model is made.

fn main() {
    println!("cargo::rerun-if-changed=src/ffi/abort.cpp");
    cc::Build::new()
        .cpp(true)
        .file("src/ffi/abort.cpp")
        .compile("twopass_abort");
}
