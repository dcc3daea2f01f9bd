// SPDX-License-Identifier: Apache-2.0

// Package alerts tests the alerts and recording rules in manifests/alerts and manifests/pools/alerts:
// promtool runs what is written there of series and the alerts that they make, and what the rules
// name is looked for in the sources of our programs and of Kueue.
package alerts
