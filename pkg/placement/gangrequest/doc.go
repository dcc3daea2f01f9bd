// SPDX-License-Identifier: Apache-2.0

// Package gangrequest says which gang a pod is of, and what the gang asks of the fabric:
// parsed, bounded, immutable. It also has the codecs of what the scheduler writes about a
// gang. Whether there is room, and when a gang may start, is for others to say.
package gangrequest
