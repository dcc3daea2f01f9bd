// SPDX-License-Identifier: Apache-2.0

// Package gate is the proxy in front of the inference server of a RemoteGPUSession: it forwards requests
// that carry the session's token and are among the calls of the Open Inference Protocol, version 2, that
// the session allows. It decodes no body, and runs nothing that a client sends.
package gate
