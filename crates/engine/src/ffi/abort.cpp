// What a failed assertion of ggml does: throw while a model or context is being made, where
// llama.cpp catches exceptions and reports them as its own error; else print, and ggml
// aborts. ggml calls this before its abort (ggml_set_abort_callback).

#include <cstdio>
#include <cstring>
#include <stdexcept>

static thread_local bool armed = false;

extern "C" void twopass_arm_abort(bool on) { armed = on; }

extern "C" void twopass_on_abort(const char * message) {
    if (!armed) {
        std::fprintf(stderr, "%s\n", message);
        return;
    }
    armed = false;
    // Without the place in the source, which says where this was built.
    const char * what = std::strstr(message, "GGML_ASSERT");
    throw std::runtime_error(what ? what : message);
}
