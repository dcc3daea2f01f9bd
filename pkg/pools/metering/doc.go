// SPDX-License-Identifier: Apache-2.0

// Package metering writes a UsageRecord for each resource of a pool that a tenant's pod holds: from
// when it was bound until it held it no more. Its one invariant: a pod has one record a resource,
// whatever restarts, and no record is lost before it has been billed. It prices nothing.
package metering
