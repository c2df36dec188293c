package nodedb

// OpenUnitInSlices opens a unit that writes sliceNodes changes in one transaction of LMDB.
func OpenUnitInSlices(folder string, o UnitOptions, sliceNodes int) (*Unit, error) {
	return openUnit(folder, o, sliceNodes)
}
