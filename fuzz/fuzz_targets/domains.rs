#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| handfast_fuzz::domains(bytes));
