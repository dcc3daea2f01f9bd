// SPDX-License-Identifier: Apache-2.0

// Package rights compares, for tests, what roles grant an account with what the account asks of
// the API server. It reads audit logs and rules, and asks nobody. It does not evaluate
// wildcards: roles of the project have none.
package rights
