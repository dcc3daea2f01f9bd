// SPDX-License-Identifier: Apache-2.0

// Package refusal tells what the API server refuses until somebody changes something, an admission
// policy, a ResourceQuota, rights or the object, from what the next try may mend.
package refusal
