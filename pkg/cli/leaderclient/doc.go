// SPDX-License-Identifier: Apache-2.0

// Package leaderclient finds the scheduler process that leads by what it published, and connects to where it
// answers: through the API server if it runs in a pod. The user's credentials go to the API server alone; the
// scheduler gets a token of ten minutes, and only once it has shown the certificate that it published.
package leaderclient
