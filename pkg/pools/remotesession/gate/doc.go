// SPDX-License-Identifier: Apache-2.0

// Package gate stands in front of the inference server of a RemoteGPUSession: it lets through what
// bears the session's token and is one of the calls of the Open Inference Protocol, version 2,
// that the session allows. It decodes no body, and runs nothing that a client sends.
package gate
