// SPDX-License-Identifier: Apache-2.0

// Package rights compares, for tests, the rights that roles grant an account with the account's requests
// to the API server. It reads audit logs and rules only. It does not evaluate wildcards: roles of the
// project have none.
package rights
