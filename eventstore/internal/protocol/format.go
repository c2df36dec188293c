package protocol

// A Format is the output format of a result.
type Format string

const (
	FormatTable  Format = "table"  // for a terminal
	FormatJSON   Format = "json"   // a JSON array of objects
	FormatNDJSON Format = "ndjson" // one JSON object per line
	FormatCSV    Format = "csv"    // RFC 4180, with a header; a null is an empty field
	FormatArrow  Format = "arrow"  // an Arrow IPC stream
	// FormatParquet is a Parquet file. It does not support Limits.Rows.
	FormatParquet Format = "parquet"
)

// Formats lists the formats.
func Formats() []Format {
	return []Format{FormatTable, FormatJSON, FormatNDJSON, FormatCSV, FormatArrow, FormatParquet}
}

// IsBinary reports whether a format is binary.
func (f Format) IsBinary() bool { return f == FormatArrow || f == FormatParquet }
