order	; order INPUT OUTPUT: sort paths as M does. INPUT has the subscripts of each path, one in a line, as ZWRITE writes
	; them, and an empty line after each path. Each path becomes a node whose value is the number of the path. OUTPUT
	; gets the nodes in their order.
	; Paths are not compiled, as with set @path=1: GT.M V7.0 confuses literals of one line. After $C(255,2,0,0) the
	; literal $C(2) is $C(255,2,0,0) too.
	new count,depth,input,output,node,subscript
	set input=$piece($zcmdline," ",1),output=$piece($zcmdline," ",2)
	set node(1)="^x(subscript(1)" for depth=2:1:31 set node(depth)=node(depth-1)_",subscript("_depth_")"
	open input:(readonly:recordsize=65535) use input
	for count=1:1 do read quit:'depth  set @(node(depth)_")")=count
	close input open output:(newversion:nowrap) use output
	zwrite ^x
	close output quit
read	new line
	for depth=0:1 read line quit:line=""  quit:$zeof  set subscript(depth+1)=$zwrite(line,1)
	quit
