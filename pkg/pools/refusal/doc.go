// SPDX-License-Identifier: Apache-2.0

// Package refusal distinguishes errors that the API server returns until an admission policy, a
// ResourceQuota, access rights or the object are changed from errors that a retry may resolve.
package refusal
