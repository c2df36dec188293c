model	; model INPUT OUTPUT: run operations, and write the result of each in a line, as ZWRITE writes it. INPUT has, in lines of
	; their own: the operation; the path, which is a name, its subscripts as ZWRITE writes them, and an empty line;
	; for set and increment the value, for merge the path to copy from. begin, commit and rollback have no path.
	; OUTPUT ends with all nodes.
	new from,input,operation,output,path,result,to
	set input=$piece($zcmdline," ",1),output=$piece($zcmdline," ",2)
	open input:(readonly:recordsize=65535),output:(newversion:nowrap)
	for  use input read operation quit:$zeof  set result="" do step tstart:operation="begin" () tcommit:operation="commit"  trollback:operation="rollback" -1 use output write $zwrite(result),!
	use output zwrite:$data(^x) ^x zwrite:$data(^y) ^y
	close input,output quit
step	quit:"begin commit rollback"[operation  ; a transaction begins and ends on one level of calls
	do path("to",.to),@operation quit
path(which,reference)	; read a path into path(which,*) and name it
	new depth,line
	read reference
	for depth=1:1 read line quit:line=""  set path(which,depth)=$zwrite(line,1),reference=reference_$select(depth=1:"(",1:",")_"path("""_which_""","_depth_")"
	set:depth>1 reference=reference_")" quit
value()	new line read line quit $zwrite(line,1)
	;
set	set @to=$$value quit
get	set result=$get(@to) quit
data	set result=$data(@to) quit
kill	kill @to quit
killValue	zkill @to quit
increment	new by set by=$$value
	new $etrap set $etrap="set result=""overflow"",$ecode="""" quit"
	; $INCREMENT of GT.M V7.0 gives "" where the value is 18 or more digits smaller than by.
	set (@to,result)=$get(@to)+by quit
next	set result=$order(@to) quit
previous	set result=$order(@to,-1) quit
merge	do path("from",.from)
	new $etrap set $etrap="set result=""overlap"",$ecode="""" quit"
	merge @to=@from quit
