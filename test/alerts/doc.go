// SPDX-License-Identifier: Apache-2.0

// Package alerts tests the alerts and recording rules in manifests/alerts and manifests/pools/alerts:
// promtool runs the tests beside them, which state series and the alerts that they cause, and the metrics
// of the rules are searched in the sources of our programs and of Kueue.
package alerts
