// SPDX-License-Identifier: Apache-2.0

// Package allocation is the choice of devices that the scheduler writes on a pod: the
// keys, the codec, the patch bodies, and the one answer to whether an allocation is a
// pod's own (Of); and the record of why its node was chosen (Decision). Everybody who
// reads or writes these annotations uses it.
package allocation
