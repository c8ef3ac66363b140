//! Qdiscs that have nothing below them: `codel`, `fq_codel`, `sfq`, `netem`.

mod codel;
mod fq_codel;
mod netem;
mod port;
mod red;
mod sfq;
mod stab;
