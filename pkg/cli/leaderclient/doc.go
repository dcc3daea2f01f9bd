// SPDX-License-Identifier: Apache-2.0

// Package leaderclient finds the leading scheduler process by its published profiles, and connects to its
// debug endpoint: through the API server if it runs in a pod. The user's credentials go to the API server
// alone; the scheduler gets a token of ten minutes, and only once it has shown the certificate that it
// published.
package leaderclient
