// SPDX-License-Identifier: Apache-2.0

// Package openmp determines the CPUs that a program's environment binds its threads to, as the OpenMP
// runtimes of GCC and LLVM read it: OMP_PLACES, GOMP_CPU_AFFINITY and KMP_AFFINITY.
//
// Invariant: a variable is either read whole or reported as unreadable, in time and memory that its
// length limits.
package openmp
