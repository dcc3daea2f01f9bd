// SPDX-License-Identifier: Apache-2.0

// Package allocation defines the allocation that the scheduler writes on a pod: the keys, the codec, the
// patch bodies, the only check whether an allocation is a pod's own (Of), and the record of why its node
// was chosen (Decision). All code that reads or writes these annotations uses it.
package allocation
