//! Declarations of all operators that are computed, by family. Argument types are those that the framework passes.

mod activation;
mod arithmetic;
mod attention;
mod comparison;
mod convolution;
mod creation;
mod foreach;
mod geometry;
mod indexing;
mod loss;
mod matrix;
mod normalization;
mod optimizer;
mod random;
mod recurrent;
mod reduction;
mod resampling;
mod selection;
mod sized;
mod unary;
