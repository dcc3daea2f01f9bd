// SPDX-License-Identifier: Apache-2.0

// Package gangrequest determines a pod's gang, and the gang's topology request: parsed, bounded,
// immutable. It also has the codecs of the scheduler's annotations about a gang. Whether there is room,
// and when a gang may start, is decided elsewhere.
package gangrequest
