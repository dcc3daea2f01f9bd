// SPDX-License-Identifier: Apache-2.0

// Package fabric places the pods of a gang by the network between the nodes: in the
// smallest domain of the fabric (rack, spine, …) that can really hold them, each node
// counted by the disjoint linked sets of GPUs that it can give to these pods.
//
// Its one invariant: Place is a function of its arguments. It locks nothing, keeps
// nothing, and equal inputs give equal plans, on every machine and in every run.
//
// It knows nothing of Kubernetes, holds nothing for anybody, and does not decide which
// gang comes first. What is dear is made once and shared by many plans: the Tree for as
// long as the labels last, the Slots of a set of free GPUs for as long as the machine
// exists. A plan reads one entry for each node.
//
// Callers that ask what is possible at best, for patience, ask Place with the supplies of an
// empty cluster. Members that have their nodes are part of the request.
//
// Where to look: tree.go and build.go are the fabric, packing.go and slots.go what one node
// can give. request.go is what a gang asks, gang.go and segments.go how it is cut into parts,
// problem.go one part. place.go is the order of the objective; count.go says what domains can
// hold, fewest.go how few of them do, choose.go which are taken, fill.go how many members each
// gets, nodes.go the nodes inside one; spread.go and mixed.go are gangs of more than one part,
// models.go and bymodel.go those that get GPUs of one model of several.
// lay.go gives ranks their seats, refuse.go the reason why there is no plan, rank.go orders
// members, estimate.go and quality.go judge a plan.
package fabric
