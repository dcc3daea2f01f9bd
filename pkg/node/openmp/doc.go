// SPDX-License-Identifier: Apache-2.0

// Package openmp reads which CPUs a program's environment binds its threads to, as the OpenMP
// runtimes of GCC and LLVM read it: OMP_PLACES, GOMP_CPU_AFFINITY and KMP_AFFINITY.
//
// Its one invariant: a variable is either read whole or reported as unreadable, in time and memory
// that its length bounds.
package openmp
