//! The library from outside, without a kernel: what commands do, print and refuse.

mod autorate;
mod bands;
mod cake;
mod cake_samples;
mod commands;
mod filters;
mod fleet;
mod fq;
mod hfsc;
mod host;
mod htb;
mod leaves;
mod listing;
mod loading;
mod offline;
mod pacing;
mod properties;
mod redirects;
mod route;
mod save;
mod stab;
mod tools;
mod vyos;
mod words;
