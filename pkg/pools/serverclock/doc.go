// SPDX-License-Identifier: Apache-2.0

// Package serverclock compares this machine's clock with the API server's, since an end or a closed
// month that was written by a wrong clock stays. It sends no requests: each HTTP response has a Date.
package serverclock
