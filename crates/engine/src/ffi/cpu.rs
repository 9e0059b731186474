//! Which of the processor's instructions llama.cpp was compiled to use.

/// What the build uses, and whether this processor has it: without one of them the first decode
/// would end the process with an illegal instruction.
#[cfg(target_arch = "x86_64")]
pub(crate) fn used_instructions() -> Vec<(&'static str, bool)> {
    use std::is_x86_feature_detected as has;

    use llama_cpp_sys_2 as sys;

    // As ggml's build sets its compiler flags: its AVX-512 means these five.
    let avx512 = has!("avx512f")
        && has!("avx512cd")
        && has!("avx512vl")
        && has!("avx512dq")
        && has!("avx512bw");
    // SAFETY: each call returns a constant of the build.
    let rows = unsafe {
        [
            ("AVX2", sys::ggml_cpu_has_avx2(), has!("avx2")),
            ("FMA", sys::ggml_cpu_has_fma(), has!("fma")),
            ("F16C", sys::ggml_cpu_has_f16c(), has!("f16c")),
            ("BMI2", sys::ggml_cpu_has_bmi2(), has!("bmi2")),
            ("AVX-VNNI", sys::ggml_cpu_has_avx_vnni(), has!("avxvnni")),
            ("AVX-512", sys::ggml_cpu_has_avx512(), avx512),
            (
                "AVX-512 VBMI",
                sys::ggml_cpu_has_avx512_vbmi(),
                has!("avx512vbmi"),
            ),
            (
                "AVX-512 VNNI",
                sys::ggml_cpu_has_avx512_vnni(),
                has!("avx512vnni"),
            ),
            (
                "AVX-512 BF16",
                sys::ggml_cpu_has_avx512_bf16(),
                has!("avx512bf16"),
            ),
        ]
    };
    let used = rows.into_iter().filter(|(_, used, _)| *used != 0);
    used.map(|(name, _, has)| (name, has)).collect()
}

/// Nothing is known of other processors.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn used_instructions() -> Vec<(&'static str, bool)> {
    Vec::new()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_build_tells_what_it_uses() {
        let used = used_instructions();
        for name in ["AVX2", "FMA", "F16C", "BMI2"] {
            assert!(used.contains(&(name, true)), "{name} is not among {used:?}");
        }
    }
}
