//! Compiles what is C++; wants the headers of Boost.

fn main() {
    println!("cargo:rerun-if-changed=src/boost.cpp");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .file("src/boost.cpp")
        .compile("peer_boost");
    println!("cargo:rustc-link-lib=rt");
}
