// SPDX-License-Identifier: Apache-2.0

// Package metering writes a UsageRecord for each resource of a pool that a tenant's pod holds: from its
// binding until it no longer held it. Its one invariant: a pod has one record per resource, after any
// restart, and no record is lost before it has been billed. It prices nothing.
package metering
